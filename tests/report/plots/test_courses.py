"""The mean course over seeds ends at the mean of their results, wherever each seed was tested."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext.report.plots.courses import Curve, mean_course


def test_seeds_that_were_tested_at_the_same_places_are_averaged_there() -> None:
    x, mean, spread = mean_course([[(1, 0.1), (5, 0.3)], [(1, 0.3), (5, 0.7)]], ended=True)
    assert x.tolist() == [1, 5] and mean == pytest.approx([0.2, 0.5])
    assert spread == pytest.approx([0.1 * 2**0.5, 0.2 * 2**0.5])


def test_a_seed_with_one_test_more_moves_no_other_point() -> None:
    """Seed 3 was resumed from 8 rounds on, and so has a test after round 8 beside those after rounds 6, 9 and 10."""
    usual, resumed = [(6, 0.1), (9, 0.4), (10, 0.2)], [(6, 0.3), (8, 0.5), (9, 0.2), (10, 0.4)]
    x, mean, _ = mean_course([usual, resumed], ended=True)
    assert x.tolist() == [6, 8, 9, 10] and mean == pytest.approx([0.2, 0.4, 0.3, 0.3])


def test_a_seed_that_ended_earlier_keeps_its_last_accuracy() -> None:
    lines: list[Curve] = [[(1, 0.1), (2, 0.3)], [(1, 0.2), (2, 0.4), (3, 0.6)]]
    x, mean, _ = mean_course(lines, ended=True)
    assert x.tolist() == [1, 2, 3] and mean == pytest.approx([0.15, 0.35, 0.45])
    x, mean, _ = mean_course(lines, ended=False)  # nobody knows what the first one will have in round 3
    assert x.tolist() == [1, 2] and mean == pytest.approx([0.15, 0.35])


def test_seeds_that_began_at_other_times_have_a_mean_from_the_last_ones_first_test_on() -> None:
    x, mean, _ = mean_course([[(10, 0.1), (20, 0.2)], [(12, 0.4), (24, 0.4)]], ended=True)
    assert x.tolist() == [12, 20, 24] and mean == pytest.approx([0.26, 0.3, 0.3])


_LINES = st.dictionaries(st.integers(1, 20), st.floats(0, 1), min_size=1).map(lambda line: sorted(line.items()))


@given(st.lists(_LINES, min_size=1, max_size=4))
def test_the_course_ends_at_the_mean_of_the_results(lines: list[Curve]) -> None:
    x, mean, spread = mean_course(lines, ended=True)
    assert mean[-1] == pytest.approx(np.mean([line[-1][1] for line in lines]))
    assert x[-1] == max(line[-1][0] for line in lines) and (np.diff(x) > 0).all()
    assert len(x) == len(mean) == len(spread) and (spread >= 0).all()
