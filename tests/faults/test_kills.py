"""Executors that are killed at each step of the protocol: the job ends as if nothing had happened."""

from pathlib import Path
from typing import Any

import pytest
from job_results import assert_equal

from .harness import run_job

STEPS = ("registered", "unit", "training", "computed", "uploaded", "evaluation", "evaluated")


def test_two_undisturbed_jobs_are_equal(job_file: Path, job: dict[str, Any], undisturbed: dict[str, Any]) -> None:
    again = run_job(job_file, job)
    assert_equal(undisturbed, again.compared)
    assert not again.deaths
    assert not any("faults" in line for line in (again.log_dir / "metrics.jsonl").read_text().splitlines())


@pytest.mark.parametrize("step", STEPS)
def test_both_executors_killed_and_started_again(
    job_file: Path, job: dict[str, Any], undisturbed: dict[str, Any], step: str
) -> None:
    kill = [(step, 0 if step == "registered" else 1)]
    # both may die of the same unit, which is not to blame here
    ended = run_job(job_file, {**job, "unit_tries": 9}, {"executor-1": kill, "executor-2": kill})
    assert ended.deaths == {"executor-1": 1, "executor-2": 1}
    assert_equal(undisturbed, ended.compared)
    assert ended.compared["chain"] == undisturbed["chain"]


def test_an_executor_that_is_lost_for_good(job_file: Path, job: dict[str, Any], undisturbed: dict[str, Any]) -> None:
    ended = run_job(job_file, job, {"executor-2": [("training", 1)]}, lost=["executor-2"])
    assert_equal(undisturbed, ended.compared)


@pytest.mark.parametrize("step", ["result_filed", "evaluate"])
def test_executors_find_an_aggregator_that_was_started_again(
    job_file: Path, job: dict[str, Any], undisturbed: dict[str, Any], step: str
) -> None:
    ended = run_job(job_file, job, {"aggregator": [(step, 2)]})
    assert ended.deaths == {"aggregator": 1}
    assert_equal(undisturbed, ended.compared)
    assert ended.compared["chain"] == undisturbed["chain"]


def test_a_unit_that_kills_whoever_takes_it_is_dropped_and_the_job_goes_on(job_file: Path, job: dict[str, Any]) -> None:
    poison = {f"executor-{rank}": [("poison", 3)] for rank in (1, 2)}
    ended = run_job(job_file, {**job, "rounds": 2}, poison)
    (reason,) = {reason for entry in ended.rounds for reason in entry["failed"]}
    assert reason == "its work unit failed 2 times: each time the executor ended"
    for entry in ended.rounds:
        assert 3 not in entry["participants"]
        assert 0 < entry["failed"][reason] <= 2  # its unit's clients
    assert ended.deaths.total() == 4  # two a round
    assert ended.faults["work units dropped"] == 2
