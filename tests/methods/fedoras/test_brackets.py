"""Brackets of tiers: the published ones, those drawn from random paths, edges and masses that make none."""

import numpy as np
import pytest

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.methods.fedoras.brackets import (
    RECIPES,
    Bracket,
    Recipe,
    between,
    cheapest_and_dearest,
    drawn_brackets,
    space_brackets,
    upper_only,
)
from fedscale_ext.models.supernet import family as supernet
from fedscale_ext.models.supernet.family import Tables

from .spaces import INPUTS, table

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
