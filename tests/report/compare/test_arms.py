"""The figures of an arm over its seeds."""

import numpy as np
import pytest

from fedscale_ext.report.compare.arms import pooled


def test_mean_and_unbiased_deviation_over_seeds(arms):
    first, second = arms[0].figures["accuracy"]
    assert first - second == pytest.approx(0.02)
    assert arms[0].mean("accuracy") == pytest.approx((first + second) / 2)
    assert arms[0].std("accuracy") == pytest.approx(0.02 / np.sqrt(2))
    assert arms[1].std("accuracy") is None
    assert arms[2].mean("suite") is None and arms[2].state == "round 20 of 40"


def test_all_seeds_clients_are_pooled_without_the_untested(arms):
    assert len(pooled(arms[0])) == 120 and len(pooled(arms[1])) == 60
