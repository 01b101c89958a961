"""A job's result, loaded: its tables, pictures and words."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from written_job import CLIENTS, capacities, write_job

import fedscale_ext
from fedscale_ext.api import result as results
from fedscale_ext.core.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("result") / "job")


@pytest.fixture
def plain(folder: Path, monkeypatch: pytest.MonkeyPatch) -> results.Result:
    """Without pandas, whether it is installed or not."""
    monkeypatch.setattr(results, "find_spec", lambda _: None)
    return fedscale_ext.load(folder)


def test_it_is_its_summary(folder: Path, plain: results.Result):
    assert plain["method"] == "fedtrans" and plain.accuracy == plain["accuracy"]["mean"]
    assert dict(plain) == {**json.loads((folder / "summary.json").read_text()), "log_dir": str(folder)}
    assert repr(plain).startswith("<Result of job: fedtrans on femnist, client accuracy 0.") and str(folder) in repr(
        plain
    )
    assert plain._repr_markdown_().startswith("# job\n")


def test_rounds_have_figures_where_they_were_tested(plain: results.Result):
    assert [row["round"] for row in plain.rounds] == list(range(1, 21))
    assert [row["round"] for row in plain.rounds if row["accuracy"] is not None] == [1, 10, 20]
    assert plain.rounds[-1]["accuracy_over_samples"] == pytest.approx(
        plain["accuracy"]["sample_weighted"])  # fmt: skip
    assert plain.rounds[4]["virtual_s"] == pytest.approx(5 * 61.7)


def test_clients_have_accuracy_model_and_capacity(plain: results.Result):
    assert len(plain.clients) == CLIENTS
    first, last = plain.clients[0], plain.clients[-1]
    assert (first["client"], first["name"]) == (1, "cam 1")
    assert (first["model"], first["capacity"]) == ("m0", capacities()[0])
    assert (last["accuracy"], last["test_samples"]) == (None, 0)
    assert first["accuracy"] == plain["accuracy"]["per_client"][0]


def test_clients_of_an_earlier_versions_job_have_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(results, "find_spec", lambda _: None)
    rows = fedscale_ext.load(write_job(tmp_path / "old", clients=False)).clients
    assert len(rows) == CLIENTS and rows[0]["name"] is None


def test_lineage_tells_where_models_come_from(plain: results.Result):
    root, child = plain.lineage
    assert (root["model"], root["parent"]) == ("m0", None)
    assert (child["parent"], child["birth"], child["steps"]) == ("m0", 7, "widen c0")
    assert child["macs"] == 24


def test_a_methods_tables(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(results, "find_spec", lambda _: None)
    other = write_job(tmp_path / "tiers")
    summary = json.loads((other / "summary.json").read_text())
    summary["results"] = {"tiers": [{"tier": 1, "accuracy": 0.5, "path": ["a"]}], "plan": {"no": "table"}}
    (other / "summary.json").write_text(json.dumps(summary))
    assert fedscale_ext.load(other).tables == {"tiers": [{"tier": 1, "accuracy": 0.5}]}


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is not installed")
def test_tables_are_pandas_where_that_is_installed(folder: Path):
    import pandas

    result = fedscale_ext.load(folder)
    tables: list[Any] = [result.rounds, result.clients, result.lineage]
    assert all(isinstance(table, pandas.DataFrame) for table in tables)
    assert result.clients["accuracy"].isna().sum() == 2
    assert result.clients.groupby("model")["accuracy"].mean().keys().tolist() == ["m0", "m1"]


def test_pictures_are_shown_and_saved(plain: results.Result, tmp_path: Path):
    picture = plain.plots()["assignment"]
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert picture.save(tmp_path / "a.svg").read_text().startswith("<?xml")
    with pytest.raises(UserError, match=r"end it with .png, .svg or .pdf"):
        picture.save(tmp_path / "a.gif")
    assert {"models", "participants"} <= plain.plots().keys()


def test_a_job_under_way_has_results_so_far(tmp_path: Path, plain: results.Result):
    early = fedscale_ext.load(write_job(tmp_path / "early", finished=False))
    assert not early.finished and early["rounds"] == 20 and early.lineage == []
    assert "not finished, round 20" in repr(early)


def test_what_is_no_job_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    with pytest.raises(UserError, match="there is no job 'nothing'"):
        fedscale_ext.load("nothing")
    with pytest.raises(UserError, match="is no log folder of a job"):
        fedscale_ext.load(tmp_path)


def test_a_picture_is_described_by_its_title_and_size() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4.5))
    assert repr(results.Picture(figure)) == "<Picture: without a title, 6 x 4.5 inches>"
    figure.subplots(1, 2)[1].set_title("accuracy")
    assert repr(results.Picture(figure)) == "<Picture: accuracy, 6 x 4.5 inches>"
