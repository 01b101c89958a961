"""Executors that keep their clients' models die, leave and join, and so does the aggregator: the job stays the same."""

import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from job_results import assert_equal

from .harness import run_job
from .test_joining import STEPS, Crowd, fates

JOBS: dict[str, dict[str, Any]] = {
    "local": {"method": "local", "model": "cnn_small"},
    "fedproto": {
        "method": "fedproto",
        "fedproto.types": ["single_exit_mlp", "cnn_small"],
        "fedproto.ranges": ["1-4", "5-7"],
        "fedproto.representation": 8,
    },
}
JOB = {"rounds": 4, "eval_interval": 2, "num_participants": 5, "cohort_size": 2, "filter_less": 0, "unit_tries": 99}
AGGREGATOR_STEPS = ("unit_sent", "result_in", "result_filed", "recorded", "checkpoint")


@pytest.fixture(scope="module", params=JOBS)
def calm(request: pytest.FixtureRequest, session_job_file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job, and how it ends undisturbed."""
    job = {**JOB, **JOBS[request.param]}
    return job, run_job(session_job_file, {**job, "job_name": f"undisturbed_{request.param}"}).compared


@pytest.mark.parametrize("seed", [1, 2])
def test_kills_of_executors_and_the_aggregator(
    job_file: Path, calm: tuple[dict[str, Any], dict[str, Any]], seed: int
) -> None:
    job, undisturbed = calm
    random = Random(seed)
    kills = {f"executor-{rank}": [(random.choice(STEPS[1:]), random.randint(1, 3))] for rank in (1, 2)}
    kills["aggregator"] = [(random.choice(AGGREGATOR_STEPS), random.randint(2, 3))]
    ended = run_job(job_file, job, kills)
    assert ended.deaths == dict.fromkeys(kills, 1)
    assert_equal(undisturbed, ended.compared)
    assert ended.compared["chain"] == undisturbed["chain"]


def test_executors_that_join_die_and_leave(job_file: Path, calm: tuple[dict[str, Any], dict[str, Any]]) -> None:
    job, undisturbed = calm
    crowd = Crowd(fates(Random(3), 4, job["rounds"]), 2)
    ended = run_job(job_file, {**job, "worker_ips": []}, meddle=crowd)
    assert_equal(undisturbed, ended.compared)
    assert any(code in (-signal.SIGKILL, 130) for code in crowd.ended.values())
