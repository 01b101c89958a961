"""The harness itself: a process may end between any two looks at it."""

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fedscale_ext.config.job_config import load_config

from .harness import Job


class Dying:
    """A process that is killed after so many looks at its exit code."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.sentinel, self.other_end = os.pipe()

    @property
    def exitcode(self) -> int | None:
        """None at first, then that of a killed process."""
        self.looks -= 1
        return None if self.looks >= 0 else -signal.SIGKILL

    def close(self) -> None:
        """Its sentinel."""
        os.close(self.sentinel)
        os.close(self.other_end)


@pytest.mark.parametrize("looks", range(5))
def test_whenever_a_process_is_killed_it_is_found_killed(
    looks: int, job_file: Path, job: dict[str, Any], tmp_path: Path
) -> None:
    watched = Job(
        load_config(job_file, [f"{key}={value}" for key, value in job.items()]),
        {},
        tmp_path,
        ["executor-1"],
        None,
        None,
    )
    process = Dying(looks)
    try:
        watched.processes["executor-1"] = process
        for _ in range(6):
            watched._look(math.inf, None)
    finally:
        process.close()
    assert watched.deaths == {"executor-1": 1} and not watched.processes
