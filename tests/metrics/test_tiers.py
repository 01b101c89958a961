import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext.metrics.tiers import group_means, tier_of


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(1, 6))
def test_tiers_are_of_equal_size_and_rise_with_capacity(capacity: list[int], tiers: int):
    values = np.array(capacity, dtype=np.float64)
    tier = tier_of(values, tiers)
    counts = np.bincount(tier, minlength=tiers)
    if len(values) >= tiers:
        assert counts.max() - counts.min() <= 1
    order = np.argsort(values, kind="stable")
    assert (np.diff(tier[order]) >= 0).all()


def test_means_leave_out_who_was_not_tested():
    means = group_means(np.array([0.5, np.nan, 1.0, np.nan]), np.array([0, 0, 0, 1]), 3)
    np.testing.assert_array_equal(means, [0.75, np.nan, np.nan])
