import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from fedscale_ext.privacy.accounting import Accountant

ZERO_OUT = dp_accounting.NeighboringRelation.REPLACE_SPECIAL


@pytest.mark.parametrize(
    ("probability", "multiplier", "releases", "delta"),
    [(0.01, 4.0, 10_000, 1e-5), (100 / 3400, 1.0, 500, 1e-5), (0.3, 2.0, 1, 1e-6), (1.0, 5.0, 40, 1e-5)],
)
def test_it_is_dp_accountings_own_figure(probability: float, multiplier: float, releases: int, delta: float) -> None:
    event = PoissonSampledDpEvent(probability, GaussianDpEvent(multiplier))
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=ZERO_OUT)
    accountant.compose(event, releases)
    ours = Accountant(multiplier, delta, probability).epsilon(releases)
    assert ours == pytest.approx(accountant.get_epsilon(delta), rel=1e-9)
    numeric = dp_accounting.pld.PLDAccountant(ZERO_OUT)  # another way to the same promise, and a tighter one
    numeric.compose(event, releases)
    assert numeric.get_epsilon(delta) <= ours <= 1.25 * numeric.get_epsilon(delta)


def test_the_moments_accountants_published_figure() -> None:
    """Abadi et al. (CCS 2016), section 3.2: q = 0.01, sigma = 4, delta = 1e-5, 10,000 steps: epsilon 1.26."""
    accountant = Accountant(4.0, 1e-5, 0.01)
    orders, divergence = accountant.renyi
    published = np.min(10_000 * divergence + math.log(1e5) / (np.asarray(orders) - 1))  # their tail bound
    assert round(float(published), 2) == 1.26
    assert 1.0 < accountant.epsilon(10_000) < 1.26  # dp-accounting's conversion is the tighter one


def test_rounds_that_a_client_was_in_are_plain_gaussian_releases() -> None:
    accountant = Accountant(1.0, 1e-5, None)
    numeric = dp_accounting.pld.PLDAccountant(ZERO_OUT)
    numeric.compose(GaussianDpEvent(1.0), 15)
    assert accountant.epsilon(15) == pytest.approx(numeric.get_epsilon(1e-5), rel=1e-6)
    assert accountant.epsilon(1) == pytest.approx(4.3772, abs=1e-4)


@pytest.mark.parametrize("probability", [0.05, None])
def test_affordable_is_the_last_round_within_the_target(probability: float | None) -> None:
    accountant = Accountant(2.0, 1e-5, probability)
    assert accountant.epsilon(0) == 0
    for target in (0.01, 3.0, 8.0):
        most = accountant.affordable(target)
        assert accountant.epsilon(most) <= target < accountant.epsilon(most + 1)
