"""Sums of a round: which units an entry's mean is over, and that the size of blocks plays no part."""

import math

import pytest
import torch

from fedscale_ext.core.types import Coverage
from fedscale_ext.tasks import reduction
from fedscale_ext.tasks.reduction import ModelMean, UnitSum

START = {"w": torch.ones(3, 2), "steps": torch.tensor(4)}
ROWS: Coverage = {"w": (torch.tensor([0, 2]), None)}


def change(rows: int, value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((rows, 2), value), "steps": torch.tensor(value)}


@pytest.mark.parametrize("part_first", [True, False])
def test_an_entry_is_averaged_over_the_units_that_cover_it(part_first: bool) -> None:
    mean = ModelMean(START)
    whole, part = (change(3, 4.0), 2.0, None), (change(2, 6.0), 1.0, ROWS)
    for changes, weight, covered in (part, whole) if part_first else (whole, part):
        mean.add(changes, weight, covered)
    state = mean.state()
    torch.testing.assert_close(state["w"][:, 0], torch.tensor([1 + 10 / 3, 1 + 4 / 2, 1 + 10 / 3]))
    assert torch.equal(state["w"][:, 0], state["w"][:, 1]) and state["steps"] == 4 + 4 / 2


def test_rows_may_weigh_less_than_their_unit() -> None:
    mean = ModelMean(START)
    mean.add(change(3, 4.0), 2.0, rows={"w": torch.tensor([[2.0], [1.0], [0.0]], dtype=torch.float64)})
    mean.add(change(3, 0.0), 2.0)
    assert mean.state()["w"][:, 0].tolist() == [1 + 4 / 4, pytest.approx(1 + 4 / 3), 1 + 4 / 2]


def test_a_model_without_units_stays_as_it_is() -> None:
    state = ModelMean(START).state()
    assert all(torch.equal(state[name], START[name]) for name in START)


def test_cohorts_do_not_change_the_weight_of_a_unit() -> None:
    """The aggregator adds the same weights, client by client."""
    weights = [math.sqrt(client) for client in range(1, 30)]
    for size in (1, 4, 29):
        total = UnitSum(START)
        for begin in range(0, len(weights), size):
            part = weights[begin : begin + size]
            total.add({name: torch.stack([tensor] * len(part)) for name, tensor in START.items()}, part)
        assert total.weight == math.fsum(weights)


def test_blocks_do_not_change_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    value = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    totals = [torch.full((7, 5), 0.1, dtype=torch.float64) for _ in range(2)]
    reduction._add_scaled(totals[0], value, 0.3)
    monkeypatch.setattr(reduction, "_BLOCK", 10)
    reduction._add_scaled(totals[1], value, 0.3)
    assert torch.equal(*totals)
    torch.testing.assert_close(totals[0], 0.1 + 0.3 * value.double())
