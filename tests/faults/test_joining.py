"""Executors that join a running job, leave it and die: the job ends as if nothing had happened."""

import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from job_results import assert_equal

from fedscale_ext.config.job_config import load_config

from .harness import Job, run_job

STEPS = ("registered", "unit", "training", "computed", "uploaded", "evaluation", "evaluated")


class Crowd:
    """Joins executors while a job runs: each of ``fates`` in its turn, then one that stays.

    Args:
        fates: Step, round and signal of the end of each.
        present: So many of them are in the job at a time.

    """

    def __init__(self, fates: list[tuple[str, int, int]], present: int) -> None:
        self.fates, self.present = fates, present
        self.ended: dict[str, int] = {}

    def __call__(self, job: Job) -> None:
        alive = [process for process in job.joiners.values() if process.exitcode is None]
        self.ended = {name: process.exitcode for name, process in job.joiners.items() if process.exitcode is not None}
        if len(alive) < self.present and len(job.joiners) < len(self.fates) + self.present:
            step, round, number = [*self.fates, *[("", 0, 0)] * self.present][len(job.joiners)]
            job.join((step, round) if step else None, number)


def fates(random: Random, count: int, rounds: int) -> list[tuple[str, int, int]]:
    """Draw how each executor ends, the earlier ones in earlier rounds."""
    drawn = []
    for round in sorted(random.randint(0, rounds - 1) for _ in range(count)):
        step = random.choice(STEPS)
        number = random.choice([signal.SIGKILL, signal.SIGINT])
        drawn.append((step, 0 if step == "registered" else round, int(number)))  # who registers is in no round yet
    return drawn


@pytest.mark.parametrize(("seed", "present"), [(1, 1), (2, 2)])
def test_a_job_of_executors_that_join_die_and_leave_ends_as_if_undisturbed(
    job_file: Path, job: dict[str, Any], undisturbed: dict[str, Any], seed: int, present: int
) -> None:
    crowd = Crowd(fates(Random(seed), 5, job["rounds"]), present)
    # several may die of one unit, which is not to blame here
    ended = run_job(job_file, {**job, "worker_ips": [], "unit_tries": 99}, meddle=crowd)
    assert_equal(undisturbed, ended.compared)
    assert ended.compared["chain"] == undisturbed["chain"]
    codes = {f"joiner-{n}": -number if number == signal.SIGKILL else 130
             for n, (_, _, number) in enumerate(crowd.fates, start=1)}  # fmt: skip
    gone = {name: code for name, code in crowd.ended.items() if code != 0}
    # who is alone comes to its step; of two, one may do the other's work
    assert gone == codes if present == 1 else gone and gone.items() <= codes.items()


def test_executors_join_a_job_that_has_its_own_and_are_shown(
    job_file: Path, job: dict[str, Any], undisturbed: dict[str, Any]
) -> None:
    # its only executor is lost, so that the job cannot end before the other one has joined
    kill = {"executor-1": [("training", 1)]}
    one = {**job, "worker_ips": ["localhost:[1]"]}
    ended = run_job(job_file, one, kill, lost=["executor-1"], meddle=Crowd([], present=1))
    assert_equal(undisturbed, ended.compared)
    assert ended.compared["chain"] == undisturbed["chain"]
    lines = [line for event in ended.events if event["event"] == "executors" for line in event["executors"]]
    assert {(line["executor"], line["joined"]) for line in lines} == {("1", False), ("2", True)}
    assert any(line["executor"] == "2" and line["units_done"] and line["busy_s"] > 0 for line in lines)


def test_data_that_only_a_joining_machine_has_are_the_jobs_which_a_notice_tells(
    job_file: Path, job: dict[str, Any], undisturbed: dict[str, Any]
) -> None:
    there = load_config(job_file).fedscale.data_dir

    def meddle(running: Job) -> None:
        if not running.joiners:
            running.join(data_dir=there)

    ended = run_job(job_file, {**job, "worker_ips": [], "data_dir": "nowhere"}, meddle=meddle)
    assert_equal(undisturbed, ended.compared)  # not the chain: data_dir is another one
    (ready,) = [event for event in ended.events if event["event"] == "ready"]
    assert ready["executors"] == 1
    notices = [event["message"] for event in ended.events if event["event"] == "notice"]
    assert notices[0].startswith("this machine has no data set in nowhere: the job's data are those of the executor")
