"""The job of these tests, and how it ends when nothing goes wrong."""

from pathlib import Path
from typing import Any

import pytest

from .harness import run_job

JOB = {"rounds": 4, "eval_interval": 2, "num_participants": 7, "model": "cnn_small"}


@pytest.fixture
def job() -> dict[str, Any]:
    """Its settings, to which a test adds its own."""
    return dict(JOB)


@pytest.fixture(scope="session")
def undisturbed(session_job_file: Path) -> dict[str, Any]:
    """What job_results.assert_equal compares of that job, undisturbed."""
    return run_job(session_job_file, JOB).compared
