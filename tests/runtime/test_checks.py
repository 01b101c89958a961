import pytest
import torch

from fedscale_ext.runtime.checks import fault_in_counts, fault_in_state

REFERENCE = {"w": torch.zeros(2, 2), "n": torch.tensor(3)}
COUNTS = {"samples": 10, "trained": 20, "steps": 4, "loss": 0.5, "utility": 1.0}


def test_a_faithful_update_passes() -> None:
    assert fault_in_state({"w": torch.ones(2, 2), "n": torch.tensor(7)}, REFERENCE) is None
    assert fault_in_counts(COUNTS, 10, 20) is None


@pytest.mark.parametrize(
    "state",
    [
        {"w": torch.ones(2, 2)},
        {"w": torch.ones(2, 2), "n": torch.tensor(1), "more": torch.tensor(1)},
        {"w": torch.ones(2, 3), "n": torch.tensor(1)},
        {"w": torch.ones(2, 2).double(), "n": torch.tensor(1)},
        {"w": torch.full((2, 2), float("nan")), "n": torch.tensor(1)},
        {"w": torch.full((2, 2), float("inf")), "n": torch.tensor(1)},
    ],
)
def test_wrong_states_are_named(state: dict) -> None:
    assert fault_in_state(state, REFERENCE)


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 11},
        {"samples": True},
        {"trained": 21},
        {"trained": 0},
        {"trained": -5},
        {"steps": 1.5},
        {"loss": float("nan")},
        {"loss": "0.5"},
        {"utility": float("inf")},
    ],
)
def test_wrong_counts_are_named(change: dict) -> None:
    assert fault_in_counts({**COUNTS, **change}, 10, 20)
