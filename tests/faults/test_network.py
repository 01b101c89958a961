"""Jobs through a network that delays, cuts, drops and goes silent: they end as if nothing had happened."""

from pathlib import Path
from typing import Any

import pytest
from job_results import assert_equal

from .calls import KINDS
from .harness import run_job

NETWORKS = {
    "delays": {"delay": 150},
    "cuts in mid-message": {"cut": 12},
    "drops": {"drop": 12},
    "half-open": {"half_open": 2},
    "all of it": {"delay": 50, "cut": 6, "drop": 6, "half_open": 2},
}


@pytest.mark.parametrize("network", NETWORKS)
def test_a_job_through_a_bad_network(
    job_file: Path, job: dict[str, Any], undisturbed: dict[str, Any], network: str
) -> None:
    kinds = NETWORKS[network]
    job |= {"lease_s": 2.0, "unit_tries": 9}  # silence is noticed within the lease
    ended = run_job(job_file, job, disturb={"seed": 7, "kinds": kinds, "chunks": 500})
    assert ended.disturbed == kinds
    assert_equal(undisturbed, ended.compared)


def test_a_job_whose_calls_are_repeated_lost_and_late(
    job_file: Path, job: dict[str, Any], undisturbed: dict[str, Any]
) -> None:
    ended = run_job(job_file, job, calls=3)
    said = [(ended.folder / f"executor-{rank}.calls").read_text().splitlines() for rank in (1, 2)]
    for kind in KINDS:
        assert any(line.endswith(kind) for lines in said for line in lines)
    assert_equal(undisturbed, ended.compared)
    assert ended.faults["results of finished units dropped"] > 0
    assert set(ended.faults) <= {"results of finished units dropped", "late results dropped"}
