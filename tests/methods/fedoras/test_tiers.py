"""Tiers: the published brackets, per-layer operators, clients by shares and by capacity."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.config.keys import RESAMPLED
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.methods.fedoras.allocation import brackets_of, tiers_of
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.tiers import (
    RECIPES,
    Bracket,
    Recipe,
    between,
    cheapest_and_dearest,
    drawn_brackets,
    space_brackets,
    tiers_by_capacity,
    tiers_by_shares,
    upper_only,
)
from fedscale_ext.models.supernet import family as supernet
from fedscale_ext.models.supernet.family import Tables
from fedscale_ext.population.capacity import capacities
from fedscale_ext.population.population import load_population

from .spaces import table

INPUTS = {"cnn_l": ((3, 32, 32), 10), "cnn_s": ((1, 40, 51), 12), "rnn_positions": ((1, 1, 80), 90),
          "cifar10_extra_range": ((3, 32, 32), 10)}  # fmt: skip
PATHS = 20_000  # a fifth of the public code's


def published(name: str) -> Tables:
    return supernet.tables(models.named_spec(name, *INPUTS[name]), published=True)


def edges(brackets: tuple[Bracket, ...]) -> list[float]:
    return [brackets[0].low / 1e6, *(bracket.high / 1e6 for bracket in brackets)]


@pytest.mark.parametrize("name", ["cnn_l", "cnn_s"])
def test_the_published_brackets_are_drawn(name: str) -> None:
    recipe = RECIPES[name]
    drawn = drawn_brackets(
        published(name), 4, stream(1), top_mass=recipe.top_mass, low_mass=recipe.low_mass, paths=PATHS
    )
    assert edges(drawn) == pytest.approx(recipe.edges, rel=0.01)


def test_the_published_brackets_of_text_are_drawn_without_zero_and_identity() -> None:
    """The public code's fixed cost holds the cheapest operator of the first layer, which paths then count again."""
    tables, recipe = published("rnn_positions"), RECIPES["rnn"]
    drawn = {
        literal: edges(drawn_brackets(tables, 5, stream(1), top_mass=recipe.top_mass, low_mass=recipe.low_mass,
                                      paths=PATHS, as_first_layer=literal))
        for literal in (True, False)
    }  # fmt: skip
    twice = tables.macs[0].min() / 1e6
    assert [edge + twice for edge in drawn[True]] == pytest.approx(recipe.edges, rel=0.01, abs=0.03)
    assert drawn[False][1] < 0.75 * drawn[True][1]


def test_every_operator_of_a_layer_is_drawn() -> None:
    tables = published("rnn_positions")
    least = {
        literal: drawn_brackets(tables, 3, stream(2), low_mass=1e-9, paths=PATHS, as_first_layer=literal)[0].high
        for literal in (True, False)
    }
    cheapest = [("linear", "zero", "identity", "zero"), ("linear",) * 4]
    assert least[False] == supernet.path_cost(tables, cheapest[0])
    assert least[True] == supernet.path_cost(tables, cheapest[1])


def test_unsupported_operators_are_not_drawn() -> None:
    tables = table([[np.inf, 5.0], [7.0, np.inf, 1.0]])
    assert cheapest_and_dearest(tables) == (16.0, 22.0)
    (bracket,) = drawn_brackets(tables, 1, stream(1), paths=100)
    assert bracket == (10.0, 22.0)


def test_a_space_has_its_printed_brackets() -> None:
    for name in INPUTS:
        tables = published(name)
        brackets = space_brackets(name, tables, stream(1))
        assert edges(brackets)[1:-1] == pytest.approx(RECIPES[name].edges[1:-1], rel=1e-12)
        assert edges(brackets)[-1] >= cheapest_and_dearest(tables)[1] / 1e6 > edges(brackets)[-2]
        assert len(brackets) == len(RECIPES[name].shares)


def test_brackets_of_other_inputs_are_drawn() -> None:
    tables = supernet.tables(models.named_spec("cnn_s", (1, 20, 51), 12), published=True)
    brackets = space_brackets("cnn_s", tables, stream(1))
    assert len(brackets) == 4
    assert brackets[-1].high == cheapest_and_dearest(tables)[1] < 0.7 * 1e6 * RECIPES["cnn_s"].edges[-1]
    assert len(space_brackets("a space of mine", tables, stream(1))) == len(Recipe().shares)


def test_a_bracket_excludes_its_lower_edge() -> None:
    low, high = between([1e6, 2e6, 4e6])
    macs = np.array([1e6, 1.5e6, 2e6, 3e6, 4e6, 5e6])
    assert low.inside(macs).tolist() == [False, True, True, False, False, False]
    assert high.inside(macs).tolist() == [False, False, False, True, True, False]
    assert upper_only([low, high])[1].inside(macs).tolist() == [True] * 5 + [False]
    assert str(high) == "above 2 and at most 4 MMACs"
    assert str(upper_only([high])[0]) == "at most 4 MMACs"


@pytest.mark.parametrize("wrong", [[], [1.0], [1.0, 1.0], [2.0, 1.0]])
def test_edges_that_do_not_rise(wrong: list[float]) -> None:
    with pytest.raises(UserError, match="each above the last"):
        between(wrong)


@pytest.mark.parametrize(
    ("tiers", "masses", "says"),
    [
        (0, {}, "there are 0 tiers"),
        (1, {"low_mass": 0.1}, "must be two or more"),
        (4, {"low_mass": 0.96}, "must rise from 0 to 1"),
        (4, {"top_mass": 1.5}, "must rise from 0 to 1"),
        (4, {"top_mass": 1.0}, "each above the last"),  # nothing is left for the last tier
    ],
)
def test_masses_that_make_no_brackets(tiers: int, masses: dict[str, float], says: str) -> None:
    with pytest.raises(UserError, match=says):
        drawn_brackets(table([[1, 2], [3, 4]]), tiers, stream(1), paths=1000, **masses)


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
