"""Figures of classes in summaries, comparisons, pages and results."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_job import CLIENTS, write_job

import fedscale_ext
from fedscale_ext.api import result as results
from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.by_class import NOT_ENDED, TEXT
from fedscale_ext.report.compare.arms import shown
from fedscale_ext.report.compare.classes import NO_CLASSES, class_tables
from fedscale_ext.report.compare.comparison_table import comma_separated, table_rows, terminal_table
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import fine_tuned, load_job
from fedscale_ext.report.job.tables import summary_table
from fedscale_ext.report.page.build import build

CLASSES = 62  # of FEMNIST; a client of the written jobs has 24 test samples, of the first 24 classes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("classes") / "job", classes=CLASSES, tuned=0.9)


@pytest.fixture
def plain(folder: Path, monkeypatch: pytest.MonkeyPatch) -> results.Result:
    monkeypatch.setattr(results, "find_spec", lambda _: None)
    return fedscale_ext.load(folder)


def test_a_summary_has_two_rows_of_them(folder: Path, tmp_path: Path) -> None:
    rows = dict(summary_table(load_job(folder).summary))
    assert rows["  by class"].startswith("balanced accuracy ") and "macro F1" in rows["  by class"]
    assert re.fullmatch(r"worst \d+\.\d\d % \(N\), best \d+\.\d\d % \(0 and 11 more\)", rows["  classes"])
    summary = load_job(folder).summary
    accuracies = summary["by_class"]["classes"]["accuracy"]
    tested = [index for index, value in enumerate(accuracies) if value is not None]
    for index in tested:
        accuracies[index] = 0.0 if index in tested[:3] else 0.5 if index == tested[3] else 1.0
    rows = dict(summary_table(summary))
    assert rows["  classes"] == f"worst 0.00 % (0 and 2 more), best 100.00 % (4 and {len(tested) - 5} more)"
    without = dict(summary_table(load_job(write_job(tmp_path / "without")).summary))
    assert "  by class" not in without and "  classes" not in without


def test_a_client_with_a_sample_of_each_class_has_its_accuracy_as_the_balanced_one(plain: results.Result) -> None:
    figures = plain["by_class"]
    balanced, accuracies = figures["balanced_accuracy"]["per_client"], plain["accuracy"]["per_client"]
    assert balanced[:-2] == pytest.approx(accuracies[:-2]) and balanced[-2:] == [None, None]
    assert figures["balanced_accuracy"]["mean"] == pytest.approx(plain["accuracy"]["mean"])
    row = plain.clients[0]
    assert row["balanced_accuracy"] == pytest.approx(row["accuracy"]) and 0 <= row["macro_f1"] <= row["accuracy"]
    assert plain.clients[-1]["balanced_accuracy"] is None


def test_a_result_has_tables_of_classes(plain: results.Result) -> None:
    table = plain.classes()
    assert [row["name"] for row in table[9:12]] == ["9", "A", "B"] and len(table) == CLASSES
    assert (table[0]["samples"], table[40]["samples"], table[40]["accuracy"]) == (CLIENTS - 2, 0, None)
    one = plain.classes("cam 3")
    assert [row["samples"] for row in one] == [1] * 24 + [0] * 38
    right = sum(row["accuracy"] for row in one if row["samples"])
    assert right / 24 == pytest.approx(plain["accuracy"]["per_client"][2])
    with pytest.raises(UserError, match="no client 'cam 99'"):
        plain.classes("cam 99")


def test_a_result_without_them_says_why(tmp_path: Path) -> None:
    old = write_job(tmp_path / "old")
    summary = json.loads((old / "summary.json").read_text())
    del summary["by_class"]
    (old / "summary.json").write_text(json.dumps(summary))
    jobs = {NOT_ENDED: old, TEXT: write_job(tmp_path / "text", data_set="shakespeare")}
    for why, job in jobs.items():
        with pytest.raises(UserError, match=why):
            fedscale_ext.load(job).classes()
        assert "balanced_accuracy" not in fedscale_ext.load(job).clients
    assert fedscale_ext.load(jobs[TEXT])["by_class"] == {"absent": TEXT}


def test_columns_are_shown_where_they_are_asked_for(folder: Path) -> None:
    arms = arms_of([load_job(folder)])
    keys = [figure.key for figure in shown(arms, by_class=True)]
    assert {"balanced", "macro_f1"} <= set(keys) and not {"balanced", "macro_f1"} & {f.key for f in shown(arms)}
    titles, rows = terminal_table(arms, table_rows(arms, by_class=True), by_class=True)
    assert "balanced accuracy %" in titles
    (tuned,) = (row for row in rows if "fine-tuned" in row[0])
    assert tuned[titles.index("macro F1 %")] == "–"  # known of the served model alone
    head, line = comma_separated(arms).splitlines()[:2]
    cells = dict(zip(head.split(","), line.split(","), strict=True))
    assert float(cells["balanced"]) == pytest.approx(load_job(folder).summary["by_class"]["balanced_accuracy"]["mean"])
    job = fine_tuned(load_job(folder))
    assert job is not None and job.summary["by_class"] is None


def test_a_table_has_a_column_per_arm_and_the_mean_over_seeds(folder: Path, tmp_path: Path) -> None:
    others = [write_job(tmp_path / f"avg{seed}", method="fedavg", seed=seed, classes=CLASSES) for seed in (1, 2)]
    without = write_job(tmp_path / "without", method="heterofl")
    arms = arms_of([load_job(each) for each in (folder, *others, without)])
    ((data, titles, rows),) = class_tables(arms)
    assert data == "femnist" and titles == ["class", "test samples", "fedtrans", "fedavg"]
    assert [row[0] for row in rows[:11]] == [*map(str, range(10)), "A"] and len(rows) == 24
    values = [load_job(each).summary["by_class"]["classes"]["accuracy"][5] for each in others]
    assert rows[5][3] == f"{100 * np.mean(values):.2f} %"


def test_auc_is_shown_where_a_job_has_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "find_spec", lambda _: None)
    job = write_job(tmp_path / "ranked", classes=CLASSES, auc=True)
    row = dict(summary_table(load_job(job).summary))["  AUC"]
    assert row.startswith("50.00 % mean over 60 clients with two classes or more, 50.00 % over all samples together")
    assert row.endswith("to within 1.00 %")
    assert "  AUC" not in dict(summary_table(load_job(folder).summary))
    result = fedscale_ext.load(job)
    assert [client["auc"] for client in result.clients[-3:]] == [0.5, None, None]
    assert [each["auc"] for each in result.classes("cam 3")] == [0.5] * 24 + [None] * 38
    assert "auc" not in fedscale_ext.load(folder).clients[0]
    arms = arms_of([load_job(job)])
    titles, ((_, *cells), *_) = terminal_table(arms, table_rows(arms, by_class=True), by_class=True)
    assert dict(zip(titles[1:], cells, strict=True))["AUC %"].startswith("50.00")
    summary = json.loads((job / "summary.json").read_text())
    summary["by_class"]["auc"]["clients"] = -1
    (job / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(UserError, match="by_class"):
        load_job(job)


@pytest.mark.parametrize("by_class", [False, True])
def test_a_page_shows_classes_where_they_are_asked_for(folder: Path, tmp_path: Path, by_class: bool) -> None:
    text = build([folder], tmp_path / "out", by_class=by_class).page.read_text()
    assert ("macro F1 %" in text) == ("<h2>Classes</h2>" in text) == by_class


def test_a_page_says_why_it_has_no_classes(tmp_path: Path) -> None:
    text = build([write_job(tmp_path / "without")], tmp_path / "out", by_class=True).page.read_text()
    assert NO_CLASSES.replace("'", "&#x27;") in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("classes", {"samples": [1], "accuracy": [0.5, 0.5]}),
        ("classes", {"samples": [0], "accuracy": [None]}),
        ("macro_f1", None),
        ("balanced_accuracy", {"mean": 1.5, "pooled": 0.5}),
    ],
)
def test_figures_that_cannot_be_are_one_sentence(tmp_path: Path, key: str, value: Any) -> None:
    job = write_job(tmp_path / "job", classes=CLASSES)
    summary = json.loads((job / "summary.json").read_text())
    summary["by_class"][key] = value
    (job / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(UserError, match="by_class"):
        load_job(job)
