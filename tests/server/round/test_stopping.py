"""Jobs of any method end where their budget is spent or their accuracy has converged; whole jobs: test_convergence."""

from argparse import Namespace
from typing import Any

import pytest

from fedscale_ext.server.round.stopping import budget_spent, converged


def job(**keys: Any) -> Any:
    usual = {"stop_macs": None, "stop_gain": None, "stop_patience": 2, "stop_unit": "evaluations", "eval_macs": None}
    return Namespace(**{**usual, **keys})


def records_of(rounds: dict[int, float]) -> list[Any]:
    """Records of rounds whose tests gave these accuracies."""
    return [Namespace(round=round, evaluation=value, training_macs=1.0)
            for round, value in rounds.items()]  # fmt: skip


@pytest.fixture(autouse=True)
def accuracies_are_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fedscale_ext.server.round.stopping.mean_accuracies",
        lambda records: [(record.round, record.evaluation) for record in records],
    )


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
def test_an_accuracy_that_rises_no_more_ends_a_job(gain: float | None, accuracies: list[float], ends: bool) -> None:
    reason = converged(job(stop_gain=gain), 1, records_of(dict(enumerate(accuracies, start=1))))
    assert reason == ("accuracy rose by no more than 0.01 over 2 evaluations" if ends else None)
    assert converged(job(stop_gain=gain), 1, []) is None


@pytest.mark.parametrize("unit", ["evaluations", "rounds"])
def test_the_test_of_a_last_round_that_a_resumed_job_went_beyond_counts_for_nothing(unit: str) -> None:
    undisturbed = {1: 0.1, 3: 0.2, 6: 0.3, 9: 0.301}
    for extra in ({}, {5: 0.5}, {5: 0.2, 7: 0.3, 8: 0.3}):
        records = records_of(dict(sorted({**undisturbed, **extra}.items())))
        for rounds in range(len(records) + 1):
            known = records[:rounds]
            config = job(stop_gain=0.01, stop_unit=unit, stop_patience=1 if unit == "evaluations" else 3)
            ends = bool(known) and known[-1].round == 9
            assert (converged(config, 3, known) is not None) is ends
