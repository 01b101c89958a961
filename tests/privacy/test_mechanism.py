import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.streams import stream
from fedscale_ext.privacy.mechanism import adapted_norm, bit_noise, change_noise, noised_mean

START = {
    "w": torch.zeros(200, 500),
    "b": torch.full((50,), 2.0),
    "bn.running_mean": torch.zeros(60),
    "bn.running_var": torch.full((60,), 1e-3),
    "bn.num_batches_tracked": torch.tensor(4),
}


def draws(*key: int | str):
    return lambda name: stream(*key, name)


def test_noise_has_the_asked_moments_and_is_on_every_coordinate() -> None:
    mean = noised_mean(START, None, deviation=3.0, count=10.0, draws=draws(1))
    change = mean["w"].double() - START["w"]
    entries = change.numel()
    assert float(change.mean()) == pytest.approx(0, abs=4 * 0.3 / math.sqrt(entries))
    assert float(change.std()) == pytest.approx(0.3, rel=4 / math.sqrt(2 * entries))
    assert float((change / 0.3).pow(4).mean()) == pytest.approx(3, rel=0.1)  # a Gaussian's kurtosis
    for name in ("w", "b", "bn.running_mean"):
        assert bool((mean[name] != START[name]).all()), name
        assert mean[name].dtype == torch.float32


def test_no_two_tensors_or_rounds_share_their_noise() -> None:
    one = noised_mean(START, None, 1.0, 1.0, draws(1))
    again, next_round = noised_mean(START, None, 1.0, 1.0, draws(1)), noised_mean(START, None, 1.0, 1.0, draws(2))
    assert all(torch.equal(one[name], again[name]) for name in START)
    assert not torch.equal(one["w"], next_round["w"])
    assert not torch.equal(one["bn.running_mean"][:50], one["b"] - 2)


def test_the_sum_is_divided_by_the_given_count_and_counters_stay() -> None:
    total = {name: torch.full(tensor.shape, 6.0, dtype=torch.float64) for name, tensor in START.items()}
    mean = noised_mean(START, total, deviation=0.0, count=4.0, draws=draws(1))
    assert bool((mean["b"] == 3.5).all())
    assert int(mean["bn.num_batches_tracked"]) == 4


def test_variances_do_not_fall_below_zero() -> None:
    mean = noised_mean(START, None, deviation=1.0, count=1.0, draws=draws(3))
    assert float(mean["bn.running_var"].min()) == 0
    assert float(mean["bn.running_mean"].min()) < 0


@settings(derandomize=True)
@given(st.floats(0.01, 50), st.integers(1, 10_000))
def test_both_releases_together_cost_what_one_would(multiplier: float, participants: int) -> None:
    bits = bit_noise(multiplier, participants)
    changes = change_noise(multiplier, bits)
    # Gaussian releases of sensitivity 1 and 1/2 compose like one: their inverse squares add up
    assert changes**-2 + (2 * bits) ** -2 == pytest.approx(multiplier**-2)
    assert multiplier < changes <= 2 / math.sqrt(3) * multiplier * (1 + 1e-12)


def test_andrews_example_of_the_split() -> None:
    # z = 1 and sigma_b = m / 20 with m = 100 participants: z_Delta = (1 - 1/100)^-1/2
    assert change_noise(1.0, bit_noise(1.0, 100)) == pytest.approx(0.99**-0.5)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("first", [0.01, 100.0])
def test_the_norm_finds_its_quantile(quantile: float, first: float) -> None:
    rng = stream("norms", str(quantile))
    norm, last = first, []
    for round in range(600):
        norms = np.exp(rng.normal(0.5, 0.7, 100))
        unclipped_share = float((norms <= norm).mean() + rng.normal(0, 5) / 100)
        norm = adapted_norm(norm, unclipped_share, quantile)
        if round >= 400:
            last.append(norm)
    reached = float((np.exp(stream("check").normal(0.5, 0.7, 100_000)) <= np.exp(np.mean(np.log(last)))).mean())
    assert reached == pytest.approx(quantile, abs=0.03)
