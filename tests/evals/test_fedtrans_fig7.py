"""What FedTrans had spent when it was as accurate as another method is in the end."""

from pathlib import Path

import pytest

from evals.fedtrans import fig7
from evals.paper.experiment import Arm, Run

CURVE = [(1.0, 20.0), (2.0, 40.0), (4.0, 38.0), (8.0, 60.0)]


def run(label: str, accuracy: float, macs: float, data: str = "har", seed: int = 1) -> Run:
    return Run(Arm(label), data, seed, Path(label), {"accuracy %": accuracy, "TMACs": macs})


def test_costs_are_compared_at_equal_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig7, "accuracy_by_cost", lambda log_dir: CURVE)
    runs = [run("FedTrans", 60, 8), run("FLuID", 39, 6), run("SplitMix", 61, 1), run("FLuID", 10, 6, "speech")]
    fedtrans, fluid, splitmix, alone = [one.figures for one in fig7.with_cost_to_there(runs)]
    assert fluid[fig7.REACHED] == 2.0 and fluid[fig7.TIMES] == 3.0
    assert all(fig7.REACHED not in figures for figures in (fedtrans, splitmix, alone))
    assert [one.seed for one in fig7.with_cost_to_there([*runs, run("FedTrans", 60, 8, seed=2)])] == [1, 1, 1, 1, 2]
