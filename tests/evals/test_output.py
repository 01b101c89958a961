"""Rows that scripts write: of jobs and of other rows, of newer code, by several scripts at a time, without paths."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fedtrans_script import EXPERIMENT, rows_of

from evals.fedtrans.settings import PAPER
from evals.paper import output
from evals.paper.engine import _relative
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.output import aggregated
from evals.paper.runs import Records


def test_rows_made_of_jobs_and_of_rows_are_there_once(tmp_path: Path) -> None:
    def doubled(runs: Sequence[Run]) -> list[Run]:
        return [replace(run, arm=Arm("twice"), figures={"x": 2 * run.figures["x"]}) for run in runs]

    def total(runs: Sequence[Run]) -> list[Run]:
        added = {seed: sum(run.figures["x"] for run in runs if run.seed == seed and run.arm.label != "total")
                 for seed in {run.seed for run in runs}}  # fmt: skip
        one_of = {run.seed: run for run in runs}  # what a script may take for the rest
        return [replace(one_of[seed], arm=Arm("total"), figures={"x": value}) for seed, value in sorted(added.items())]

    table = Experiment("made", "Made", [], ["x"], rows=doubled, derived=total)

    def write(figures: dict[int, float]) -> dict[str, Any]:
        runs = [Run(Arm("job"), "x", seed, tmp_path / str(seed), {"x": value}, keys={"method": "fedavg"})
                for seed, value in figures.items()]  # fmt: skip
        output.record(table, runs, tmp_path, "made", "c", "smoke")
        rows = rows_of(tmp_path, "made")
        return {row["label"]: (row["seeds"], row["figures"]["x"]["values"]) for row in rows}

    assert write({1: 5.0, 2: 7.0}) == {"twice": ([1, 2], [10.0, 14.0]), "total": ([1, 2], [10.0, 14.0])}
    assert write({2: 8.0, 3: 9.0}) == {
        "twice": ([1, 2, 3], [10.0, 16.0, 18.0]), "total": ([1, 2, 3], [10.0, 16.0, 18.0])
    }  # fmt: skip
    parts = {(run.part, *run.keys) for run in Records.load(tmp_path).runs.values()}
    assert parts == {("twice", "method"), ("total", "table")}


def test_figures_that_no_page_reads_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "experiment_of", lambda paper, script: EXPERIMENT)
    runs = [Run(Arm("A"), "x", 1, tmp_path, {"a": 1.0, "b": 2.0, "c": 3.0, "global %": 4.0}, keys={"method": "fedavg"})]
    recorded = []
    for name in "ab":  # a job of two tables
        output.record(Experiment(name, name, [Arm("A")], [name]), runs, tmp_path, name, "c", "smoke")
        recorded += [set(run.figures) for run in Records.load(tmp_path).runs.values()]
    assert recorded == [{"a", "global %"}, {"a", "b", "global %"}]  # a floor stands beside accuracies


def test_jobs_of_newer_code_replace_those_of_their_row_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "experiment_of", lambda paper, script: EXPERIMENT)
    table, other = (Experiment(name, name, [Arm("A"), Arm("B")], ["f"]) for name in ("one", "other"))

    def record(experiment: Experiment, code: str, *runs: tuple[str, int]) -> None:
        """One job after the other, as scripts do."""
        done = []
        for label, seed in runs:
            done.append(Run(Arm(label), "x", seed, tmp_path, {"f": float(code)}, keys={"method": label}, code=code))
            output.record(experiment, done, tmp_path, experiment.name, code, "smoke")

    def figures(name: str) -> dict[str, dict[int, float]]:
        return {row["label"]: dict(zip(row["seeds"], row["figures"]["f"]["values"], strict=True))
                for row in rows_of(tmp_path, name)}  # fmt: skip

    for experiment in (table, other):
        record(experiment, "1", ("A", 1), ("A", 2), ("B", 1))
    assert len(Records.load(tmp_path).runs) == 3
    record(table, "2", ("A", 1), ("A", 2), ("A", 3))
    assert figures("one") == {"A": {1: 2.0, 2: 2.0, 3: 2.0}, "B": {1: 1.0}}
    assert figures("other") == {"A": {1: 1.0, 2: 1.0}, "B": {1: 1.0}}
    assert "\nIts jobs are of several versions of the code: 1, 2.\n" in (tmp_path / "results.md").read_text()
    record(other, "2", ("A", 1), ("A", 2), ("B", 1))
    assert sorted(run.code or "" for run in Records.load(tmp_path).runs.values()) == ["1", "2", "2", "2", "2"]


def test_scripts_at_the_same_time_keep_each_others_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each records after every job, and began before the others recorded anything."""
    monkeypatch.setattr(output, "experiment_of", lambda paper, script: EXPERIMENT)

    def script(number: int) -> None:
        experiment = Experiment(f"t{number}", "T", [Arm("A")], ["f"])
        runs = [Run(Arm("A"), "x", seed, tmp_path, {"f": 1.0}, keys={"n": number}) for seed in range(5)]
        for last in range(5):
            output.record(experiment, runs[: last + 1], tmp_path, experiment.name, "c", "smoke")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(script, range(4)))
    records = Records.load(tmp_path)
    assert len(records.runs) == 20
    assert [len(row.runs) for table in records.tables.values() for row in table.rows] == [5] * 4


def test_no_place_of_this_machine_goes_into_results() -> None:
    why = "/home/me/data/x.csv cannot be read: permission denied; '/tmp/a b' and (/x/y/) and/or 3 / 4 of C/D are fine"
    (row,) = aggregated([Run(Arm("A"), "har", 1, None, failed=why)])
    assert row["failed"] == ["x.csv cannot be read: permission denied; 'a b' and (y/) and/or 3 / 4 of C/D are fine"]


def test_files_of_the_repository_are_named_by_their_path_within() -> None:
    assert _relative(str(PAPER.folder / "models" / "one.json")) == "evals/fedtrans/models/one.json"
    assert _relative("resnet18") == "resnet18" and _relative(3) == 3
