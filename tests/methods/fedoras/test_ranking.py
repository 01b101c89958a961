"""Pareto fronts and the agreement of rankings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext.methods.fedoras.ranking import kendall_tau, pareto

POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=25)


@given(POINTS)
def test_the_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    macs, scores = np.array(points, dtype=float).T
    front = pareto(macs, scores)

    def beaten(macs_of: float, score: float) -> bool:
        return bool(((macs <= macs_of) & (scores >= score) & ((macs < macs_of) | (scores > score))).any())

    assert {points[place] for place in front} == {point for point in points if not beaten(*point)}
    assert macs[front].tolist() == sorted(set(macs[front].tolist()))


def test_scores_that_are_not_numbers_are_on_no_front() -> None:
    assert pareto(np.array([1.0, 2.0, 3.0]), np.array([np.nan, 1.0, np.nan])) == [1]


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=15))
def test_tau_counts_pairs(points: list[tuple[int, int]]) -> None:
    a, b = np.array(points, dtype=float).T
    signs = [np.sign(np.subtract.outer(x, x))[np.triu_indices(len(x), 1)] for x in (a, b)]
    untied = np.sqrt(np.prod([np.abs(own).sum() for own in signs]))
    expected = (signs[0] * signs[1]).sum() / untied if untied else np.nan
    assert kendall_tau(a, b) == pytest.approx(expected, nan_ok=True)


def test_tau_of_rankings() -> None:
    assert kendall_tau([1, 2, 3, 4], [10, 20, 30, 99]) == pytest.approx(1)
    assert kendall_tau([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert kendall_tau([1, np.nan, 3, 4], [1, 2, 5, np.inf]) == pytest.approx(1)
    assert np.isnan(kendall_tau([1, 2], [3, np.nan]))
