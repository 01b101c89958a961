"""What holds for jobs of any method."""

from typing import Any

import pytest


def test_a_resumed_job_goes_on_bit_for_bit(job: Any, usual: Any) -> None:
    job("parts", rounds=2)
    resumed = job("parts", resume=True)
    assert (resumed["loss"], resumed["accuracy"]) == (usual["loss"], usual["accuracy"])


def test_clients_side_by_side_learn_what_they_learn_one_by_one(job: Any, usual: Any) -> None:
    assert job("cohort", cohort_size=4)["loss"]["test"] == pytest.approx(usual["loss"]["test"], rel=1e-4)
