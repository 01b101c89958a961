"""NaN stands for a value that is missing."""

import math

import numpy as np

from fedscale_ext.core.missing_values import mean_of_known, ratios


def test_a_mean_leaves_out_missing_values() -> None:
    assert mean_of_known(np.array([-1.0, math.nan, 4.0])) == 1.5
    assert math.isnan(mean_of_known(np.array([math.nan]))) and math.isnan(mean_of_known(np.zeros(0)))


def test_a_ratio_to_nothing_is_missing() -> None:
    assert np.array_equal(ratios(np.array([1, 0]), np.array([4, 0])), [0.25, math.nan], equal_nan=True)
