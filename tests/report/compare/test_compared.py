"""The table of a comparison: personal models beside shared ones, fine-tuned rows, floors, notices."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from written_job import write_job

from fedscale_ext.report.compare.arms import Arm, shown
from fedscale_ext.report.compare.cautions import cautions
from fedscale_ext.report.compare.columns import BY_KEY
from fedscale_ext.report.compare.comparison_table import (
    TableRow,
    comma_separated,
    table_notes,
    table_rows,
    terminal_table,
)
from fedscale_ext.report.compare.competing import best
from fedscale_ext.report.compare.disqualified import disqualified
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import load_job
from fedscale_ext.report.page.build import build

FLOOR = {"majority": {"mean": 0.7, "iqr": 0.1, "sample_weighted": 0.65, "tested": 60}}


@pytest.fixture
def compared(tmp_path: Path) -> Any:
    def make(**jobs: dict[str, Any]) -> list[Arm]:
        return arms_of([load_job(write_job(tmp_path / name, method=name, generated=True, **keys))
                        for name, keys in jobs.items()])  # fmt: skip

    return make


def cell(arms: list[Arm], row: TableRow, key: str) -> Any:
    return dict(zip([figure.key for figure in shown(arms)], row.cells, strict=True))[key]


def test_personal_models_do_not_compete_with_shared_ones(compared: Any) -> None:
    arms = compared(fedavg={}, heterofl={"shift": -0.1}, fedmd={"shift": 0.2, "personal": True},
                    local={"shift": 0.1, "personal": True})  # fmt: skip
    rows = table_rows(arms)
    assert [(row.label, "personal" in row.marks) for row in rows] == [
        ("fedavg", False), ("heterofl", False), ("fedmd", True), ("local", True)
    ]  # fmt: skip
    assert [cell(arms, row, "accuracy").best for row in rows] == [True, False, True, False]
    assert best(arms[:1] + arms[2:3], BY_KEY["accuracy"]) == set()  # nobody to compete with
    _, cells = terminal_table(arms, rows)
    assert [row[0] for row in cells] == ["fedavg", "heterofl", "fedmd (personal)", "local (personal)"]
    head, *values = [line.split(",") for line in comma_separated(arms).splitlines()]
    assert [row[head.index("personal")] for row in values] == ["no", "no", "yes", "yes"]
    (note,) = table_notes(rows)
    assert note.startswith("In rows marked personal, each client is tested on a model of its own.")
    assert not table_notes(table_rows(arms[:2]))


def test_fine_tuned_clients_are_a_personal_row_without_cost(compared: Any) -> None:
    arms = compared(fedavg={"tuned": 0.9}, fedmd={"shift": 0.05, "personal": True}, heterofl={"shift": -0.1})
    rows = table_rows(arms)
    assert [row.label for row in rows] == ["fedavg", "fedavg, fine-tuned", "fedmd", "heterofl"]
    assert ["personal" in row.marks for row in rows] == [False, True, True, False] and rows[1].index == rows[
        0
    ].index == 0
    assert [cell(arms, row, "accuracy").best for row in rows] == [True, True, False, False]
    tuned = rows[1]
    assert (cell(arms, tuned, "accuracy").value, cell(arms, tuned, "worst_tenth").value) == ("90.00", "90.00")
    assert {cell(arms, tuned, key).value for key in ("macs", "network", "time", "tuned", "suite")} == {"–"}
    assert [cell(arms, row, "tuned").value for row in rows] == ["90.00", "–", "–", "–"]
    assert not any(cell(arms, row, "tuned").best for row in rows)
    assert any("whose cost is not counted" in note for note in table_notes(rows))


def test_a_papers_row_stands_below_the_fine_tuned_one(tmp_path: Path) -> None:
    arms = arms_of([load_job(write_job(tmp_path / "job", tuned=0.9))])
    assert [row.kind for row in table_rows(arms)] == ["arm", "tuned", "paper"]


def test_seeds_of_which_one_did_not_fine_tune_are_no_row(tmp_path: Path) -> None:
    jobs = [write_job(tmp_path / "a", seed=0, tuned=0.9), write_job(tmp_path / "b", seed=1)]
    (arm,) = arms_of(list(map(load_job, jobs)))
    assert "tuned" not in {row.kind for row in table_rows([arm])}


def test_the_floor_of_the_data_stands_last_and_competes_not(compared: Any) -> None:
    low = {"shift": -0.5, "floor": FLOOR}
    arms = compared(fedavg=low, heterofl=low, old={"shift": -0.6})
    *_, floor = rows = table_rows(arms)
    assert [row.kind for row in rows] == ["arm", "arm", "arm", "floor"]
    assert floor.label == "majority of the client's own labels" and floor.index is None
    values = {key: cell(arms, floor, key).value for key in ("accuracy", "samples", "iqr", "macs")}
    assert values == {"accuracy": "70.00", "samples": "65.00", "iqr": "10.00", "macs": "–"}
    assert not any(one.best for one in floor.cells)
    assert terminal_table(arms, rows)[1][-1][:2] == [floor.label, ""]
    assert any("is a floor" in note for note in table_notes(rows))


def test_the_most_frequent_label_of_all_clients_is_a_second_floor(compared: Any) -> None:
    both = {**FLOOR, "most_frequent": {**FLOOR["majority"], "mean": 0.8}}
    arms = compared(fedavg={"floor": both}, heterofl={"floor": both})
    majority, most_frequent = (row for row in table_rows(arms) if row.kind == "floor")
    assert (majority.label, most_frequent.label) == (
        "majority of the client's own labels", "most frequent label of all clients"
    )  # fmt: skip
    assert [cell(arms, row, "accuracy").value for row in (majority, most_frequent)] == ["70.00", "80.00"]
    assert sum("floor" in note for note in table_notes(table_rows(arms))) == 2
    old = compared(old={"floor": FLOOR})
    assert not any("second floor" in note for note in table_notes(table_rows(old)))


def test_accuracy_on_all_samples_is_a_column_where_a_job_has_it(compared: Any) -> None:
    arms = compared(fedavg={}, fedmd={"personal": True})
    assert "on_all" not in {figure.key for figure in shown(arms)}
    job = arms[0].jobs[0]
    job.summary["on_all"] = {"mean": 0.4}
    assert cell(arms, table_rows(arms)[0], "on_all").value == "40.00"


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
    assert [row.label for row in table_rows(arms)[3:]] == [
        "majority of the client's own labels (fedavg, local)", "majority of the client's own labels (fedmd)"
    ]  # fmt: skip


def test_one_data_set_under_two_names_has_one_row_for_each_floor(compared: Any) -> None:
    data = {"generated": False, "digest": "1"}
    arms = compared(fedavg={"floor": FLOOR, "data": {"name": "one", **data}},
                    local={"floor": FLOOR, "data": {"name": "two", **data}})  # fmt: skip
    (floor,) = [row for row in table_rows(arms) if row.kind == "floor"]
    assert (floor.label, floor.data) == ("majority of the client's own labels", "one, two")


def test_the_page_names_data_once_for_all_methods_that_leave_public_samples(undrawn: None, tmp_path: Path) -> None:
    data = {"name": "x", "generated": False, "digest": "1", "public_samples": 12}
    folders = [
        write_job(tmp_path / method, method=method, data={**data, "public_data_used": method == "feddf"})
        for method in ("fedavg", "feddf", "heterofl")
    ]
    text = build(folders, tmp_path / "out").page.read_text(encoding="utf-8")
    sentence = "Data: x (real), 12 training samples set aside as public data, which fedavg and heterofl do not use</p>"
    assert sentence in text
    alone = build(folders[:1], tmp_path / "alone").page.read_text(encoding="utf-8")
    assert "Data: x (real), 12 training samples set aside as public data, which fedavg does not use</p>" in alone


def marks(arms: list[Arm], key: str) -> list[bool]:
    return [cell(arms, row, key).best for row in table_rows(arms) if row.index is not None]


def cheap(*arms: Arm) -> None:
    """Let the first of arms cost least and spread least."""
    for index, arm in enumerate(arms):
        for job in arm.jobs:
            job.summary["cost"]["training_macs"] = 1e6 * (index + 1)
            job.summary["accuracy"]["iqr"] = 0.1 * (index + 1)


def test_a_job_whose_clients_diverged_is_the_best_in_no_column(compared: Any) -> None:
    arms = compared(fedavg={"failed": {"diverged: the loss is not finite from step 1": 3}}, fedprox={},
                    heterofl={"shift": -0.1})  # fmt: skip
    cheap(*arms)
    assert marks(arms, "macs") == marks(arms, "iqr") == [False, True, False]
    assert marks(arms, "accuracy") == [False, True, False]
    assert cautions(arms) == ["Not marked as the best in any column: fedavg (its training diverged)."]
    assert marks(arms[:2], "macs") == [False, False]  # the one that counts is not the cheapest, and no other counts
    assert cautions(arms[1:]) == cautions(arms[:1]) == []


def test_a_failure_that_is_no_divergence_takes_no_mark(compared: Any) -> None:
    arms = compared(fedavg={"failed": {"OSError: diverged: x": 3}}, fedprox={"shift": -0.1})
    cheap(*arms)
    assert marks(arms, "macs") == [True, False] and cautions(arms) == []


def guesses(majority: float, shared: float | None) -> dict[str, Any]:
    """Settings of a job whose mean accuracy is about 0.71, with these floors."""
    floor = {"majority": {**FLOOR["majority"], "mean": majority}}
    return {"floor": floor if shared is None else {**floor, "most_frequent": {**FLOOR["majority"], "mean": shared}}}


@pytest.mark.parametrize(
    ("majority", "shared", "personal", "marked"),
    [
        (0.1, 0.9, False, False),
        (0.9, 0.1, False, True),  # a shared model cannot guess each client's own label
        (0.9, 0.1, True, False),
        (0.1, 0.9, True, False),
        (0.9, None, False, False),  # an earlier version recorded the first floor alone
        (0.1, 0.1, False, True),
    ],
)
def test_a_job_that_only_guesses_is_the_best_in_no_column(
    compared: Any, majority: float, shared: float | None, personal: bool, marked: bool
) -> None:
    low, high = {**guesses(majority, shared), "personal": personal}, {"shift": 0.25, "personal": personal}
    arms = compared(fedavg=low, fedprox=high, heterofl={"shift": 0.2, "personal": personal})
    cheap(*arms)
    assert marks(arms, "iqr") == marks(arms, "macs") == [marked, not marked, False]
    assert marks(arms, "accuracy") == [False, True, False]
    (sentence,) = cautions(arms) or [""]
    assert bool(sentence) is not marked
    assert marked or sentence.startswith("Not marked as the best in any column: fedavg (its accuracy of 7")
    assert marked or sentence.endswith("% is not above the 90.00% of guessing).")


def test_floors_of_several_data_are_told_apart_in_the_terminal(tmp_path: Path) -> None:
    def job(name: str, method: str) -> Any:
        data = {"name": name, "generated": False, "digest": name}
        return load_job(write_job(tmp_path / name, method=method, data=data, floor=FLOOR))

    arms = arms_of([job("here", "fedavg"), job("there", "heterofl")])
    labels = [row[0] for row in terminal_table(arms, table_rows(arms))[1]]
    assert labels[2:] == [f"majority of the client's own labels, {name}" for name in ("here", "there")]


def test_a_row_with_one_seed_that_only_guesses_is_the_best_in_no_column(compared: Any) -> None:
    """Its spread over clients may be the least, since all of them fare alike badly."""
    arms = compared(fedavg=guesses(0.1, 0.1), fedmd={"shift": -0.05})
    (jobs,) = [arm.jobs for arm in arms if arm.label == "fedavg"]
    low = replace(jobs[0], summary={**jobs[0].summary, "accuracy": {**jobs[0].summary["accuracy"], "mean": 0.05}})
    assert disqualified([jobs[0]]) is None
    reason = disqualified([jobs[0], low])
    assert reason == f"its accuracy of 5.00% with seed {low.seed} is not above the 10.00% of guessing"


def test_accuracy_equal_to_the_floor_is_guessing_and_a_hair_above_is_not(compared: Any) -> None:
    (arm,) = compared(fedavg=guesses(0.1, 0.1))
    reached = arm.jobs[0].summary["accuracy"]["mean"]
    arms = compared(a=guesses(0.1, reached), b=guesses(0.1, reached - 1e-4))
    assert [one.disqualified is None for one in arms] == [False, True]


def test_a_masked_test_knows_the_clients_labels(compared: Any) -> None:
    (arm,) = compared(fedavg=guesses(0.9, 0.1))
    arm.jobs[0].summary["accuracy"]["unmasked"] = {"mean": 0.2}
    assert arm.disqualified is not None


def test_a_fine_tuned_row_that_only_guesses_is_named_itself(compared: Any) -> None:
    arms = compared(fedavg={**guesses(0.8, 0.1), "tuned": 0.75}, fedmd={"personal": True, "shift": -0.1})
    assert cautions(arms) == [
        "Not marked as the best in any column: fedavg, fine-tuned (its accuracy of 75.00% is not above the 80.00% of "
        "guessing)."
    ]
    assert marks(arms, "accuracy") == [False, False, False]  # of two personal rows, the higher one only guesses
