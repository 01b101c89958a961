"""Eqs. 9 and 10."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext.methods.moss.fidelity_aggregation import aggregate, fidelity, shares
from tests.methods.moss.toy import generator


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 99), st.sampled_from([0.0, 1e-30, 1.0, 1e30]))
def test_fidelity_lies_between_0_and_1(samples, classes, seed, scale):
    one, other = torch.randn(2, samples, classes, generator=generator(seed)) * scale
    assert 0 <= fidelity(one, other) <= 1
    assert fidelity(one, other) == pytest.approx(fidelity(3 * one, other))  # of directions only
    if scale == 1.0:
        assert fidelity(one, one) == pytest.approx(1) and fidelity(one, -one) == pytest.approx(0, abs=1e-7)


def test_fidelity_is_the_mean_over_samples():
    one, other = torch.tensor([[1.0, 0], [1, 0], [100, 0]]), torch.tensor([[2.0, 0], [0, 1], [0, 1]])
    assert fidelity(one, other) == pytest.approx((1 + 0.5 + 0.5) / 3)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_the_weights_sum_to_one(fidelities):
    weights = shares(fidelities)
    assert sum(weights) == pytest.approx(1) and all(0 <= each <= 1 for each in weights)
    if not any(fidelities):
        assert weights == [1 / len(fidelities)] * len(fidelities)


def test_proxies_are_not_weighed_by_what_is_no_number():
    with pytest.raises(FloatingPointError, match="proxies cannot be weighed by"):
        shares([0.5, float("nan")])


def test_proxies_are_averaged_by_their_fidelity_and_equal_ones_stay():
    states = [
        {"w": torch.tensor([0.0, 4.0]), "n": torch.tensor(3)},
        {"w": torch.tensor([4.0, 4.0]), "n": torch.tensor(5)},
    ]
    mean = aggregate(states, [0.25, 0.75])
    assert mean["w"].tolist() == [3.0, 4.0] and mean["n"].dtype == torch.int64
    assert torch.equal(aggregate([states[1]] * 3, [0.1, 0.9, 0.3])["w"], states[1]["w"])
