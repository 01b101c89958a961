"""The aggregator is killed at each step of the protocol and resumes: the job ends as if nothing had happened."""

from pathlib import Path

import pytest
from job_results import assert_equal

from .harness import Result, run_job

# round 1: there is no checkpoint yet, and the job starts anew; round 2: it goes on from the checkpoint of round 1
JOB = {
    "rounds": 3, "eval_interval": 1, "num_participants": 7, "model": "cnn_small", "local_steps": 1, "method": "fedyogi"
}  # fmt: skip
_UNDISTURBED: list[Result] = []  # run once: it depends on no folder


@pytest.mark.parametrize(
    "kills",
    [
        [("register", 0), ("unit_sent", 1), ("result_in", 2)],
        [("result_filed", 1), ("aggregate", 2), ("evaluate", 3)],
        [("aggregated", 2), ("recorded", 3)],
        [("checkpoint_rename", 1), ("checkpoint_renamed", 2), ("evaluated_all", 3)],
    ],
    ids=lambda kills: "+".join(f"{step}@{round}" for step, round in kills),
)
def test_a_killed_aggregator_goes_on_to_the_same_end(job_file: Path, kills: list[tuple[str, int]]) -> None:
    if not _UNDISTURBED:
        _UNDISTURBED.append(run_job(job_file, {**JOB, "job_name": "undisturbed"}))
    killed = run_job(job_file, {**JOB, "job_name": "killed"}, {"aggregator": kills})
    assert killed.deaths == {"aggregator": len(kills)}
    assert_equal(_UNDISTURBED[0].compared, killed.compared)
