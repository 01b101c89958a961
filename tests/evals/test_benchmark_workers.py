"""An interrupt of the benchmark's workers is quiet whenever it comes, and ends them."""

import os
import signal
import subprocess
import sys
import time

import pytest
from cli.conftest import ROOT

_PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
from evals.benchmark.workers import Workers
try:
    with Workers(2) as workers:
        jobs = [workers.submit(time.sleep, seconds) for seconds in {seconds}]
        print("begun", flush=True)
        for job in jobs:
            job.result()
except KeyboardInterrupt:
    sys.exit(130)
"""


def begun(seconds: list[float]) -> subprocess.Popen[str]:
    """A process group whose workers have been asked to sleep, and may still start."""
    command = [sys.executable, "-c", _PROGRAM.format(seconds=seconds)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1, 2.0])  # while workers start, and while they work
@pytest.mark.parametrize("seconds", [[60.0, 60.0], [0.01, 60.0]], ids=["both work", "one is replaced"])
def test_an_interrupt_of_workers_that_start_or_work_is_quiet(delay: float, seconds: list[float]) -> None:
    process = begun(seconds)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    assert (*process.communicate(timeout=30), process.returncode) == ("", "", 130)


def test_an_interrupt_ends_jobs_that_no_worker_has_begun() -> None:
    """A worker that replaces an interrupted one starts after the signal."""
    process = begun([60.0, 60.0, 60.0])
    time.sleep(2.0)
    os.killpg(process.pid, signal.SIGINT)
    assert (*process.communicate(timeout=30), process.returncode) == ("", "", 130)


def test_an_interrupt_of_the_command_alone_ends_its_workers() -> None:
    process = begun([60.0, 60.0])
    time.sleep(2.0)  # now they work
    process.send_signal(signal.SIGINT)
    assert (*process.communicate(timeout=30), process.returncode) == ("", "", 130)


def test_workers_end_with_a_killed_command() -> None:
    process = begun([60.0, 60.0])
    time.sleep(2.0)  # now they work
    process.kill()
    process.communicate(timeout=30)  # workers hold its pipes until they end
