"""Paths within a budget: never above it, never none, and which of them how often."""

from collections import Counter
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedscale_ext.methods.fedoras.path_sampling import (
    cheapest,
    drawn_paths,
    load_budgets,
    path_macs,
    sample_paths,
)
from fedscale_ext.models.supernet.family import Tables

from .made_up import table

LIKELY = 1e-3  # a fixed seed: the figure is the same every time


def draws(tables: Tables, budget: float, count: int, seed: int = 5) -> np.ndarray:
    return sample_paths(tables, tables.held, np.full(count, budget), np.random.default_rng(seed))


def test_without_a_budget_all_paths_are_as_likely() -> None:
    tables = table([[1, 2, 3], [4, 0], [0, 7, 9]])
    counts = Counter(map(tuple, draws(tables, np.inf, 9000).tolist()))
    assert len(counts) == 18
    assert stats.chisquare(list(counts.values())).pvalue > LIKELY


def greedy(tables: Tables, budget: float) -> dict[tuple[int, ...], Fraction]:
    """Probability of each path under Equation 3: all permutations with layers without a free operator first."""
    macs = [[int(one) for one in row if np.isfinite(one)] for row in tables.macs]
    orders = [
        order
        for order in permutations(range(len(macs)))
        if [0 in macs[layer] for layer in order] == sorted(0 in macs[layer] for layer in order)
    ]
    chances: Counter[tuple[int, ...]] = Counter()
    for order in orders:
        partial = {(): Fraction(1, len(orders))}
        for layer in order:
            longer: Counter[tuple[int, ...]] = Counter()
            for chosen, chance in partial.items():
                used = int(tables.fixed_macs) + sum(macs[earlier][o] for earlier, o in zip(order, chosen, strict=False))
                fitting = [o for o, one in enumerate(macs[layer]) if used + one <= budget]
                for operator in fitting:
                    longer[(*chosen, operator)] += chance / len(fitting)
            partial = dict(longer)
        for chosen, chance in partial.items():
            chances[tuple(o for _, o in sorted(zip(order, chosen, strict=True)))] += chance
    return dict(chances)


@pytest.mark.parametrize("budget", [14, 17, 23])
def test_within_a_budget_paths_are_as_likely_as_the_equation_makes_them(budget: int) -> None:
    tables = table([[2, 3, 4], [0, 2, 5], [0, 1, 3]])
    expected, count = greedy(tables, budget), 20_000
    drawn = Counter(map(tuple, draws(tables, budget, count).tolist()))
    assert drawn.keys() == expected.keys()
    counts, means = zip(*((drawn[path], count * float(chance)) for path, chance in expected.items()), strict=True)
    assert sum(expected.values()) == 1 and stats.chisquare(counts, means).pvalue > LIKELY


def test_equal_layers_are_treated_alike_however_tight_the_budget() -> None:
    tables = table([[0, 1, 2, 4]] * 5)
    paths = draws(tables, 10 + 6, 5000)
    counts = np.array([np.bincount(layer, minlength=4) for layer in paths.T])
    assert stats.chi2_contingency(counts).pvalue > LIKELY
    assert counts.min() > 0 and path_macs(tables, paths).max() == 16


def test_every_operator_turns_up_that_fits_into_some_path() -> None:
    tables = table([[5, 6, 20], [0, 3, 9], [1, 2, 4], [0, 7, 8]])
    paths = draws(tables, 10 + 5 + 1 + 7, 4000)
    operators = [sorted(set(layer.tolist())) for layer in paths.T]
    assert operators == [[0, 1], [0, 1], [0, 1, 2], [0, 1]]


@st.composite
def spaces(draw: st.DrawFn) -> Tables:
    row = st.lists(st.integers(0, 50), min_size=1, max_size=5)
    return table(draw(st.lists(row, min_size=1, max_size=7)))


@given(tables=spaces(), more=st.lists(st.integers(0, 100), min_size=1, max_size=5), seed=st.integers(0, 99))
@settings(max_examples=150)
def test_no_path_exceeds_its_budget_and_there_always_is_one(tables: Tables, more: list[int], seed: int) -> None:
    least = cheapest(tables, tables.held)
    budgets = least + np.array(more, dtype=np.float64)
    paths = sample_paths(tables, tables.held, budgets, np.random.default_rng(seed))
    assert (path_macs(tables, paths) <= budgets).all()
    assert tables.held[np.arange(paths.shape[1]), paths].all()
    with pytest.raises(ValueError, match="below the cheapest path"):
        sample_paths(tables, tables.held, np.array([least - 1]), np.random.default_rng(seed))


def test_two_layers_without_a_free_operator_leave_each_other_enough() -> None:
    """By the printed equation alone, whichever of them chooses first may take what the other one needs."""
    tables = table([[5, 9], [5, 9], [0, 4]])
    assert sum(greedy(tables, 25).values()) == 1 and (path_macs(tables, draws(tables, 25, 500)) <= 25).all()
    assert sum(greedy(tables, 20).values()) < 1  # it fails
    assert (path_macs(tables, draws(tables, 20, 500)) <= 20).all()


def test_operators_that_are_not_held_or_not_supported_are_never_drawn() -> None:
    tables = table([[1, np.inf, 3], [0, 2, np.inf]])
    assert {tuple(path) for path in draws(tables, np.inf, 200).tolist()} == set(product((0, 2), (0, 1)))
    held = np.array([[False, False, True], [True, True, False]])
    paths = sample_paths(tables, held, np.full(100, np.inf), np.random.default_rng(0))
    assert {tuple(path) for path in paths.tolist()} == {(2, 0), (2, 1)}
    with pytest.raises(ValueError, match="below the cheapest path, inf"):
        sample_paths(tables, np.zeros_like(held), np.array([np.inf]), np.random.default_rng(0))


def test_a_path_takes_two_numbers_a_layer_and_no_second_try() -> None:
    tables, one, other = table([[0, 50, 60, 70]] * 6), np.random.default_rng(1), np.random.default_rng(1)
    sample_paths(tables, tables.held, np.full(40, 65.0), one)  # a path drawn freely fits once in some hundred
    other.random(2 * 40 * 6)
    assert one.random() == other.random()


def test_budgets_may_change_from_batch_to_batch() -> None:
    tables = table([[2, 3, 4], [0, 2, 5], [0, 1, 3]])
    budgets = np.tile([12.0, 22.0], 300)
    macs = path_macs(tables, sample_paths(tables, tables.held, budgets, np.random.default_rng(3)))
    assert (macs[::2] == 12).all() and macs[1::2].max() == 22
    loaded = load_budgets(22.0, 12.0, 0.9, 1000, np.random.default_rng(3))
    assert loaded.min() == 12.0 and 21 < loaded.max() <= 22 and 14 < loaded.mean() < 17
    paths = drawn_paths(tables, tables.held, 22.0, 0.9, 1000, 1, 2, 3)
    assert path_macs(tables, paths).mean() < path_macs(tables, draws(tables, 22.0, 1000)).mean() - 1


def test_a_clients_paths_are_its_own_and_the_same_on_both_sides() -> None:
    tables = table([[2, 3, 4], [0, 2, 5], [0, 1, 3]])
    one = drawn_paths(tables, tables.held, 20.0, 0.3, 50, 1, 2, 3)
    assert (one == drawn_paths(tables, tables.held, 20.0, 0.3, 50, 1, 2, 3)).all()
    for key in ((1, 2, 4), (1, 3, 3), (2, 2, 3)):
        assert (one != drawn_paths(tables, tables.held, 20.0, 0.3, 50, *key)).any()
