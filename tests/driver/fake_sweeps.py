"""Sweeps of fake jobs: how tests run them, and what the fake aggregator does not write of a job itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedscale_ext.config.job_config import from_argv
from fedscale_ext.driver import jobs

from .conftest import done

NOTE = (
    "note: aggregator_entry aggregator.py is not of this package: data, devices and models are checked when the job "
    "starts (all 2 jobs)\n"
)


def job(name: str) -> Any:
    """A job's record, or None if there is none."""
    return jobs.read(name)


def run(fedscale: Callable[..., Any], *words: object, **env: str) -> tuple[int, str, str]:
    """Exit code, output and errors of ``driver start`` with these words, once it has ended."""
    return done(fedscale("driver", "start", *words, **env))


def checkpoint(folder: Path) -> None:
    """Write the checkpoint of a job that is half-way."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "checkpoint-000003.safetensors").touch()


def header(name: str, digest: str | None = None, **config: object) -> None:
    """Write the header of a job that has begun: its settings, with some that differ, and the digest of its data."""
    record = job(name)
    record.log_dir.mkdir(parents=True, exist_ok=True)
    settings = {**from_argv(record.argv[2:]).echo(), **config}
    (record.log_dir / "header.json").write_text(
        json.dumps({"config": settings, "data": {"digest": digest}}, default=str)
    )
