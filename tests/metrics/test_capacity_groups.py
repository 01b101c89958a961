import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext.metrics.capacity_groups import device_groups, group_means, tier_of


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40, unique=True), st.integers(1, 6))
def test_tiers_are_of_equal_size_where_capacities_differ(capacity: list[int], tiers: int):
    counts = np.bincount(tier_of(np.array(capacity, dtype=np.float64), tiers), minlength=tiers)
    assert len(counts) == tiers
    if len(capacity) >= tiers:
        assert counts.max() - counts.min() <= 1


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 6))
def test_tiers_rise_with_capacity_and_split_no_equal_devices(capacity: list[int], tiers: int):
    values = np.array(capacity, dtype=np.float64)
    tier = tier_of(values, tiers)
    assert tier.min() >= 0 and tier.max() < tiers
    assert (np.diff(tier[np.argsort(values, kind="stable")]) >= 0).all()
    assert all(len(set(tier[values == value].tolist())) == 1 for value in set(capacity))


def test_a_few_kinds_of_devices_are_a_group_each_and_their_macs_its_name():
    group, names = device_groups(np.array([2e6, 1e6, 2e6, 2e6, 4e6]))
    assert group.tolist() == [1, 0, 1, 1, 2] and names == ["1 MMACs", "2 MMACs", "4 MMACs"]
    assert device_groups(np.array([500.0]))[1] == ["500 MACs"]
    assert device_groups(np.array([1_000_100.0, 1_000_200.0]))[1] == ["1,000,100 MACs", "1,000,200 MACs"]
    group, names = device_groups(np.arange(8.0))
    assert group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and names == ["weakest", "second", "third", "strongest"]


def test_means_leave_out_who_was_not_tested():
    means = group_means(np.array([0.5, np.nan, 1.0, np.nan]), np.array([0, 0, 0, 1]), 3)
    np.testing.assert_array_equal(means, [0.75, np.nan, np.nan])
