import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.population.selection.pyramidfl import dropout_ratios, lengthened


def test_dropout_is_linear_in_the_rank_of_utility() -> None:
    assert dropout_ratios(np.array([5.0, 9.0, 1.0]), 0.1, 0.6) == pytest.approx([0.35, 0.1, 0.6])
    assert dropout_ratios(np.array([7.0]), 0.1, 0.6) == pytest.approx([0.1])
    # unknown ones rank as the mean, 5; equal ones share the better rank
    assert dropout_ratios(np.array([4.0, np.nan, 6.0]), 0.1, 0.6) == pytest.approx([0.6, 0.35, 0.1])
    assert dropout_ratios(np.full(4, np.nan), 0.1, 0.6) == pytest.approx(np.full(4, 0.1))


def test_extra_passes_fill_the_wait() -> None:
    # 20 steps in 4 s: 0.2 s each; 1.3 s are six more
    assert lengthened(20, 100, 1.3, 4.0, 1.0) == 26
    assert lengthened(20, 100, 1.3, 4.0, 0.5) == 23
    assert lengthened(20, 100, 1.3, 4.0, 0.0) == 20
    assert lengthened(20, 100, 1e9, 4.0, 1.0) == 220  # ten times as many
    assert lengthened(20, 10, 1e9, 4.0, 1.0) == 50  # five epochs of ten steps
    assert lengthened(20, 1, 1e9, 4.0, 1.0) == 20  # ... which it trains in any case
    assert lengthened(1, 1, 1e9, 4.0, 1.0) == 5  # one epoch
    assert lengthened(20, 10, 1.0, 0.0, 1.0) == 20


@settings(max_examples=100)
@given(st.integers(1, 50), st.integers(1, 50), st.floats(0, 1e4), st.floats(1e-3, 1e3), st.floats(0, 1))
def test_extra_passes_never_outlast_the_wait(
    passes: int, epoch: int, slack: float, seconds: float, beta: float
) -> None:
    more = lengthened(passes, epoch, slack, seconds, beta)
    assert passes <= more <= 11 * passes
    assert (more - passes) * seconds / passes <= slack * (1 + 1e-9)
