"""Jobs of any method end where their budget is spent or their accuracy has converged; whole jobs: test_convergence."""

from argparse import Namespace
from typing import Any

import pytest

from fedscale_ext.server.stopping import budget_spent, converged, evaluation_is_due


def job(**keys: Any) -> Any:
    return Namespace(**{"stop_macs": None, "stop_gain": None, "stop_patience": 2, "stop_unit": "evaluations", **keys})


@pytest.mark.parametrize(
    ("budget", "spent", "sentence"),
    [
        (None, 1e30, None),
        (2e9, 1.99e9, None),
        (2e9, 2e9, "clients' training took 2e+09 MACs"),
        (2e9, 3.456e9, "clients' training took 3.46e+09 MACs"),
    ],
)
def test_a_spent_budget_ends_a_job(budget: float | None, spent: float, sentence: str | None) -> None:
    assert budget_spent(job(stop_macs=budget), spent) == sentence


@pytest.mark.parametrize(
    ("gain", "accuracies", "ends"),
    [(None, [0.5, 0.5, 0.5], False), (0.01, [0.3, 0.4, 0.5], False), (0.01, [0.5, 0.505, 0.504], True)],
)
def test_an_accuracy_that_rises_no_more_ends_a_job(
    gain: float | None, accuracies: list[float], ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list(enumerate(accuracies, start=1))
    monkeypatch.setattr("fedscale_ext.server.stopping.mean_accuracies", lambda history: seen if history else [])
    found = converged(job(stop_gain=gain), [object()])  # type: ignore[list-item]
    assert found == ("accuracy rose by no more than 0.01 over 2 evaluations" if ends else None)
    assert converged(job(stop_gain=gain), []) is None


@pytest.mark.parametrize(
    ("round", "every_macs", "spent", "is_due"),
    [(1, None, 0.0, True), (2, None, 1e9, False), (5, None, 1e9, True), (2, 4e9, 3.5e9, True), (2, 4e9, 2e9, False)],
)
def test_a_evaluation_is_due_by_rounds_or_by_macs(
    round: int, every_macs: float | None, spent: float, is_due: bool
) -> None:
    record: Any = Namespace(round=round, training_macs=1e9)
    assert evaluation_is_due(5, every_macs, record, spent) is is_due
