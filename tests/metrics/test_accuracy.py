import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_job import evaluation

from fedscale_ext.core.types import Evaluation
from fedscale_ext.metrics.accuracy import accuracy, client_accuracy


def of(correct: list[int], count: list[int], loss: list[float] | None = None) -> Evaluation:
    return Evaluation(
        round=1,
        serve=["m0"] * len(count),
        correct=np.array(correct),
        top5=np.array(count),
        loss=np.array(loss or [0.0] * len(count)),
        count=np.array(count),
        named={},
    )


def test_figures_by_hand():
    # accuracies 0.5, 0.25, 1.0, 0.0, none
    figures = accuracy(of([1, 5, 4, 0, 0], [2, 20, 4, 4, 0], [1.0, 2.0, 3.0, 4.0, 99.0]))
    assert figures.mean == pytest.approx(0.4375)
    assert (figures.worst, figures.worst_client, figures.best) == (0.0, 4, 1.0)
    assert (figures.q1, figures.median, figures.q3) == pytest.approx((0.1875, 0.375, 0.625))
    assert figures.iqr == pytest.approx(0.4375)
    assert figures.sample_weighted == pytest.approx(10 / 30)
    assert figures.top5 == 1.0
    assert figures.loss == pytest.approx(10 / 30)
    assert (figures.tested, figures.untested) == (4, 1)


def test_nobody_tested_is_nan_and_counted():
    figures = accuracy(of([0, 0], [0, 0]))
    assert math.isnan(figures.mean) and math.isnan(figures.loss)
    assert (figures.worst_client, figures.tested, figures.untested) == (None, 0, 2)


def test_untested_clients_keep_their_place():
    assert client_accuracy(of([0, 3], [0, 4])).tolist() == pytest.approx([math.nan, 0.75], nan_ok=True)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.integers(0, 5))
def test_equal_sample_counts_make_both_means_equal(correct, untested):
    figures = accuracy(evaluation(1, [value / 12 for value in correct], samples=12, untested=untested))
    assert figures.mean == pytest.approx(figures.sample_weighted)
    assert figures.worst <= figures.q1 <= figures.median <= figures.q3 <= figures.best
    assert figures.untested == untested
    assert correct[figures.worst_client - 1] == min(correct)
