"""One cell of the kill matrix: a job of the real command under ``--supervise``, one of whose processes dies."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from job_results import assert_equal, result  # noqa: E402

from fedscale_ext.metrics.job_folder.restarts import count_restarts  # noqa: E402

Kills = Mapping[str, Sequence[tuple[str, int]]]  # process -> (step of tests/faults/steps.py, round)


@dataclass(frozen=True)
class Ended:
    """How a job ended: what must be equal (tests/job_results.py), and how often each process was restarted."""

    result: dict[str, Any]
    internals: bytes
    restarts: dict[str, int]
    seconds: float


def run(job_file: Path, folder: Path, name: str, kills: Kills, **keys: Any) -> Ended:
    """Run the job ``name`` below ``folder`` to its end; AssertionError where it fails, or a kill did not happen."""
    killed = folder / f"killed-{name}"
    killed.mkdir(parents=True)
    settings = {
        "job_name": name, "log_path": folder, "time_stamp": "run", "ps_port": 0,
        "exp_path": HERE, "aggregator_entry": "entry.py", "executor_entry": "entry.py", **keys,
    }  # fmt: skip
    command = [sys.executable, "-m", "fedscale_ext.cli", "driver", "start", str(job_file), "--supervise"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, *(f"--set={key}={value}" for key, value in settings.items())],
        env={
            **os.environ,
            "FEDSCALE_EXT_STATE": str(folder / "state"),
            "FEDSCALE_EXT_KILLS": json.dumps(kills),
            "FEDSCALE_EXT_KILLED": str(killed),
        },
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    there = {path.name for path in killed.iterdir()}
    wanted = {f"{process}.{number}.killed" for process, each in kills.items() for number in range(len(each))}
    assert there == wanted, f"of {wanted}, {there} happened: {done.stdout}{done.stderr}"
    log_dir = folder / "logs" / name / "run"
    internals = log_dir / "internals.jsonl"
    return Ended(
        result(log_dir),
        internals.read_bytes() if internals.exists() else b"",
        count_restarts(log_dir),
        time.monotonic() - began,
    )


def check(undisturbed: Ended, disturbed: Ended, kills: Kills) -> None:
    """AssertionError unless the results are bitwise equal and who was killed was restarted."""
    for process, each in kills.items():
        assert disturbed.restarts.get(process, 0) >= len(each), f"{process} was not restarted: {disturbed.restarts}"
    assert_equal(undisturbed.result, disturbed.result)
    assert undisturbed.internals == disturbed.internals
