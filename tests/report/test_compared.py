"""The table of a comparison: personal models beside shared ones, fine-tuned rows, floors, notices."""

from pathlib import Path
from typing import Any

import pytest
from written_job import write_job

from fedscale_ext.report.arms import BY_KEY, Arm, arms_of, best, shown
from fedscale_ext.report.build import build
from fedscale_ext.report.compared import Line, comma_separated, comparison_rows, lines, table_notes
from fedscale_ext.report.loading import load_job

FLOOR = {"majority": {"mean": 0.7, "iqr": 0.1, "sample_weighted": 0.65, "tested": 60}}


@pytest.fixture
def compared(tmp_path: Path) -> Any:
    def make(**jobs: dict[str, Any]) -> list[Arm]:
        return arms_of([load_job(write_job(tmp_path / name, method=name, generated=True, **keys))
                        for name, keys in jobs.items()])  # fmt: skip

    return make


def cell(arms: list[Arm], row: Line, key: str) -> Any:
    return dict(zip([figure.key for figure in shown(arms)], row.cells, strict=True))[key]


def test_personal_models_do_not_compete_with_shared_ones(compared: Any) -> None:
    arms = compared(fedavg={}, heterofl={"shift": -0.1}, fedmd={"shift": 0.2, "personal": True},
                    local={"shift": 0.1, "personal": True})  # fmt: skip
    rows = lines(arms)
    assert [(row.label, row.personal) for row in rows] == [
        ("fedavg", False), ("heterofl", False), ("fedmd", True), ("local", True)
    ]  # fmt: skip
    assert [cell(arms, row, "accuracy").best for row in rows] == [True, False, True, False]
    assert best(arms[:1] + arms[2:3], BY_KEY["accuracy"]) == set()  # nobody to compete with
    _, cells = comparison_rows(arms, rows)
    assert [row[0] for row in cells] == ["fedavg", "heterofl", "fedmd (personal)", "local (personal)"]
    head, *values = [line.split(",") for line in comma_separated(arms).splitlines()]
    assert [row[head.index("personal")] for row in values] == ["no", "no", "yes", "yes"]
    (note,) = table_notes(rows)
    assert note.startswith("In rows marked personal, each client is tested on a model of its own.")
    assert not table_notes(lines(arms[:2]))


def test_fine_tuned_clients_are_a_personal_row_without_cost(compared: Any) -> None:
    arms = compared(fedavg={"tuned": 0.9}, fedmd={"shift": 0.05, "personal": True}, heterofl={"shift": -0.1})
    rows = lines(arms)
    assert [row.label for row in rows] == ["fedavg", "fedavg, fine-tuned", "fedmd", "heterofl"]
    assert [row.personal for row in rows] == [False, True, True, False] and rows[1].index == rows[0].index == 0
    assert [cell(arms, row, "accuracy").best for row in rows] == [True, True, False, False]
    tuned = rows[1]
    assert (cell(arms, tuned, "accuracy").value, cell(arms, tuned, "worst_tenth").value) == ("90.00", "90.00")
    assert {cell(arms, tuned, key).value for key in ("macs", "network", "time", "tuned", "suite")} == {"–"}
    assert [cell(arms, row, "tuned").value for row in rows] == ["90.00", "–", "–", "–"]
    assert not any(cell(arms, row, "tuned").best for row in rows)
    assert any("whose cost is not counted" in note for note in table_notes(rows))


def test_a_papers_row_stands_below_the_fine_tuned_one(tmp_path: Path) -> None:
    arms = arms_of([load_job(write_job(tmp_path / "job", tuned=0.9))])
    assert [row.kind for row in lines(arms)] == ["arm", "tuned", "paper"]


def test_seeds_of_which_one_did_not_fine_tune_are_no_row(tmp_path: Path) -> None:
    jobs = [write_job(tmp_path / "a", seed=0, tuned=0.9), write_job(tmp_path / "b", seed=1)]
    (arm,) = arms_of(list(map(load_job, jobs)))
    assert "tuned" not in {row.kind for row in lines([arm])}


def test_the_floor_of_the_data_stands_last_and_competes_not(compared: Any) -> None:
    low = {"shift": -0.5, "floor": FLOOR}
    arms = compared(fedavg=low, heterofl=low, old={"shift": -0.6})
    *_, floor = rows = lines(arms)
    assert [row.kind for row in rows] == ["arm", "arm", "arm", "floor"]
    assert floor.label == "majority of the client's own labels" and floor.index is None
    values = {key: cell(arms, floor, key).value for key in ("accuracy", "samples", "iqr", "macs")}
    assert values == {"accuracy": "70.00", "samples": "65.00", "iqr": "10.00", "macs": "–"}
    assert not any(one.best for one in floor.cells)
    assert comparison_rows(arms, rows)[1][-1][:2] == [floor.label, ""]
    assert any("is a floor" in note for note in table_notes(rows))


def test_the_most_frequent_label_of_all_clients_is_a_second_floor(compared: Any) -> None:
    both = {**FLOOR, "most_frequent": {**FLOOR["majority"], "mean": 0.8}}
    arms = compared(fedavg={"floor": both}, heterofl={"floor": both})
    majority, most_frequent = (row for row in lines(arms) if row.kind == "floor")
    assert (majority.label, most_frequent.label) == (
        "majority of the client's own labels", "most frequent label of all clients"
    )  # fmt: skip
    assert [cell(arms, row, "accuracy").value for row in (majority, most_frequent)] == ["70.00", "80.00"]
    assert sum("floor" in note for note in table_notes(lines(arms))) == 2
    old = compared(old={"floor": FLOOR})
    assert not any("second floor" in note for note in table_notes(lines(old)))


def test_accuracy_on_all_samples_is_a_column_where_a_job_has_it(compared: Any) -> None:
    arms = compared(fedavg={}, fedmd={"personal": True})
    assert "on_all" not in {figure.key for figure in shown(arms)}
    job = arms[0].jobs[0]
    job.summary["on_all"] = {"mean": 0.4}
    assert cell(arms, lines(arms)[0], "on_all").value == "40.00"


def test_the_page_marks_personal_rows_and_tells_notices_once(undrawn: None, tmp_path: Path) -> None:
    folders = [write_job(tmp_path / "a", method="fedavg", notices=["20 of 60 clients <b>", "slow"]),
               write_job(tmp_path / "b", method="local", personal=True, notices=["slow"])]  # fmt: skip
    text = build(folders, tmp_path / "out").page.read_text(encoding="utf-8")
    assert text.count('<span class="tag">personal</span>') == 1
    assert 'local <span class="tag">personal</span>' in text
    assert "so personal and shared rows do not compete" in text
    assert "<li>20 of 60 clients &lt;b&gt; <span" in text and "(all 2 jobs)" in text and text.count("<li>slow") == 1
    alone = build(folders[:1], tmp_path / "alone").page.read_text(encoding="utf-8")
    assert "<li>slow</li>" in alone and "personal and shared" not in alone


def test_floors_of_several_splits_name_their_arms(compared: Any) -> None:
    other = {"majority": {**FLOOR["majority"], "mean": 0.6}}
    arms = compared(fedavg={"floor": FLOOR}, local={"floor": FLOOR}, fedmd={"floor": other})
    assert [row.label for row in lines(arms)[3:]] == [
        "majority of the client's own labels (fedavg, local)", "majority of the client's own labels (fedmd)"
    ]  # fmt: skip
