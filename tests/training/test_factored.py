"""Weights kept as factors: their sums, and the scalars of the optimiser."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedscale_ext.tasks.reduction import UnitSum
from fedscale_ext.training.factored import Coefficients, FactoredWeight, FactoredWeights
from fedscale_ext.training.optimizers.sgd import Sgd

OUT, IN, BATCH = 7, 5, 3


def trained(clients: int, steps: list[int], dtype: torch.dtype) -> tuple[Tensor, FactoredWeights]:
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(OUT, IN, generator=generator, dtype=dtype)
    weight = FactoredWeight()
    weight.begin(start, Sgd(0.1, 0.5, 0.01, 0.2, None), clients, max(steps), BATCH)
    for step in range(max(steps)):
        active = sum(count > step for count in steps)
        x = torch.randn(active, BATCH, IN, generator=generator, dtype=dtype, requires_grad=True)
        bias = torch.zeros(active, OUT, dtype=dtype, requires_grad=True)
        torch.autograd.grad(weight.linear(x, bias).square().sum(), [bias])
        weight.advance()
    return start, weight.trained(steps)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(
    lr=st.floats(0.001, 1.0), momentum=st.floats(0.0, 0.99), decay=st.floats(0.0, 0.1), mu=st.floats(0.0, 1.0),
    steps=st.integers(1, 12),
)  # fmt: skip
def test_the_scalars_follow_the_optimiser(lr: float, momentum: float, decay: float, mu: float, steps: int) -> None:
    # axis 0 stands for W_0, axis s for the gradient of step s: w is the vector of the coefficients
    sgd = Sgd(lr, momentum, decay, mu, None)
    w = torch.zeros(steps + 1, dtype=torch.float64)
    w[0] = 1.0
    optimiser, coefficients = sgd.begin([w]), Coefficients(sgd)
    for step in range(1, steps + 1):
        gradient = torch.zeros_like(w)
        gradient[step] = 1.0
        optimiser.step([w], [gradient])
        coefficients.advance()
        share, past = coefficients.after[-1]
        assert torch.allclose(w[: step + 1], torch.tensor([share, *past], dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_a_clipped_gradient_cannot_be_factored() -> None:
    with pytest.raises(ValueError, match="clipped"):
        Coefficients(Sgd(0.1, 0.0, 0.0, 0.0, 1.0))


@pytest.mark.parametrize("steps", [[4, 4, 4], [4, 2, 1]])
@pytest.mark.parametrize("weights", [[2.0, 3.0, 0.5], [2.0, None, 0.5], [None, None, None]])
def test_the_sum_of_factored_changes_is_that_of_the_weights(steps: list[int], weights: list[float | None]) -> None:
    start, factors = trained(3, steps, torch.float64)
    whole = torch.stack([factors[client] for client in range(3)])
    sums = []
    for rows in (factors, whole):
        total = UnitSum({"weight": start})
        assert total.add({"weight": rows}, weights) == [None] * 3
        sums.append(total.change()["weight"])
        assert total.weight == sum(weight or 0.0 for weight in weights)
    assert torch.allclose(*sums, rtol=1e-12, atol=1e-12)
    assert (sums[0].abs().max() > 0.01) == any(weights)


def test_factors_and_whole_states_add_up_in_one_sum() -> None:
    start, factors = trained(2, [3, 3], torch.float64)
    mixed, plain = UnitSum({"weight": start}), UnitSum({"weight": start})
    mixed.add({"weight": factors}, [1.0, 2.0])
    mixed.add({"weight": factors[0][None]}, [4.0])
    plain.add({"weight": torch.stack([factors[0], factors[1], factors[0]])}, [1.0, 2.0, 4.0])
    assert torch.allclose(mixed.change()["weight"], plain.change()["weight"], rtol=1e-12, atol=1e-12)


def test_a_client_whose_factors_are_not_finite_is_left_out() -> None:
    start, factors = trained(2, [3, 3], torch.float32)
    expected = (factors[1] - start) * 2.0
    factors._gradients[0][0, 0] = float("nan")
    total = UnitSum({"weight": start})
    assert total.add({"weight": factors}, [1.0, 2.0]) == ["diverged: tensor 'weight' is not finite", None]
    assert total.weight == 2.0
    assert torch.allclose(total.change()["weight"], expected, atol=1e-6)
