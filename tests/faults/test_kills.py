"""Executors that are killed at each step of the protocol: the job ends as if nothing had happened."""

from pathlib import Path

from job_results import assert_equal

from .harness import run_job

JOB = {"rounds": 3, "eval_interval": 1, "num_participants": 7}


def test_two_undisturbed_jobs_are_equal(job_file: Path) -> None:
    one, other = (run_job(job_file, {**JOB, "job_name": name}) for name in ("one", "other"))
    assert_equal(one.compared, other.compared)
