"""Tiers of clients: by shares, by capacity, and with FedScale's devices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.config.keys import RESAMPLED
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.fedoras.brackets import RECIPES, between, brackets_of
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.tier_assignment import tiers_by_capacity, tiers_by_shares, tiers_of
from fedscale_ext.population.capacity import capacities
from fedscale_ext.population.population import load_population

from .spaces import INPUTS


def test_tiers_by_capacity_stay_within_it() -> None:
    brackets = between([1.0, 5.0, 10.0, 20.0])
    tiers = tiers_by_capacity(np.array([0.1, 5.0, 9.9, 10.0, 19.0, 20.0, 1e9]), brackets)
    assert tiers.tolist() == [0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("name", "clients"), [("cnn_l", 100), ("cnn_s", 2112), ("rnn_positions", 715)])
def test_a_job_of_a_named_space_starts_with_fedscales_devices(name: str, clients: int) -> None:
    """By default. The devices' speeds differ less than the budgets, of which the literal rule makes empty tiers."""
    spec = models.named_spec(name, *INPUTS[name])
    smallest = models.cost(models.named_spec(f"{name}_smallest", *INPUTS[name]))
    devices = load_population(list(map(str, range(clients))), RESAMPLED, None, 1)
    capacity = capacities(devices, "computation", smallest, local_steps=20, batch_size=10, reference_macs=3e8)
    params, everybody = FedorASParams(), np.ones(clients, dtype=bool)
    brackets = brackets_of(name, spec, params, 1)
    tiers = tiers_of(name, spec, params, 1, brackets, capacity, everybody)
    shares = np.array(RECIPES[name].shares)
    assert np.abs(np.bincount(tiers, minlength=len(brackets)) - clients * shares).max() < 1
    weakest = [capacity[tiers == tier].min() for tier in range(len(brackets))]
    assert weakest == sorted(weakest) and tiers[capacity.argmax()] == len(brackets) - 1
    with pytest.raises(UserError, match=r"tier \d of \d has none of the"):
        tiers_of(name, spec, FedorASParams(allocation="capacity"), 1, brackets, capacity, everybody)


@given(st.integers(8, 200), st.lists(st.floats(0.2, 1.0), min_size=1, max_size=5))
def test_shares_are_kept_to_within_a_client(clients: int, shares: list[float]) -> None:
    tiers = tiers_by_shares(np.random.default_rng(clients).permutation(clients), shares)
    counts = np.bincount(tiers, minlength=len(shares))
    assert counts.sum() == clients
    assert np.abs(counts - clients * np.array(shares) / sum(shares)).max() < 1 + 1e-9


def test_shares_of_speech() -> None:
    assert np.bincount(tiers_by_shares(np.arange(2112), RECIPES["cnn_s"].shares)).tolist() == [1690, 26, 26, 370]


def test_the_first_in_order_are_in_the_lowest_tier() -> None:
    capacity = np.array([5.0, 1.0, 9.0, 3.0])
    assert tiers_by_shares(np.argsort(capacity), [0.5, 0.25, 0.25]).tolist() == [1, 0, 2, 0]


@pytest.mark.parametrize("shares", [[], [0.0, 0.0], [1.0, -0.1]])
def test_wrong_shares(shares: list[float]) -> None:
    with pytest.raises(UserError, match="each must be positive"):
        tiers_by_shares(np.arange(4), shares)


def test_a_tier_without_clients() -> None:
    with pytest.raises(UserError, match=r"tier 2 of 3 has none of the 20 clients at a share of 0\.01; raise"):
        tiers_by_shares(np.arange(20), [0.5, 0.01, 0.49])
