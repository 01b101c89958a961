"""Epsilon of the released models, by Google's dp-accounting library.

Neighbouring data sets differ in one client's data, which one of them lacks, so that the client's clipped change is zero
("zero-out"; dp-accounting calls it REPLACE_SPECIAL). The client's device, number of samples and online times are the
same in both. Nothing but its change can tell the two apart.
"""

import logging
import math
from bisect import bisect_right
from functools import cached_property

import numpy as np

from fedscale_ext.core.errors import UserError

NEEDS_ACCOUNTING = (
    "differential privacy needs the package dp-accounting: install it with pip install 'fedscale_ext[privacy]', "
    "in a checkout with pip install -c constraints.txt -e '.[privacy]'"
)
_RELEASES = range(1, 1 << 21)  # numbers of releases among which the largest affordable one is searched


class Accountant:
    """Epsilon after a number of Gaussian releases.

    Args:
        noise_multiplier: Standard deviation of the noise, in units of a release's sensitivity.
        delta: The delta at which epsilon is given.
        probability: Chance of a client to be part of a release, by a secret coin per client (Poisson sampling, Renyi
            accountant: an upper bound). None counts only releases that the client was part of, which may be public;
            epsilon is then exact.

    Raises:
        UserError: If the package dp-accounting is not installed.

    """

    def __init__(self, noise_multiplier: float, delta: float, probability: float | None) -> None:
        self.noise_multiplier, self.delta, self.probability = noise_multiplier, delta, probability
        try:
            import dp_accounting
        except ImportError:
            raise UserError(NEEDS_ACCOUNTING) from None
        self._library = dp_accounting

    @cached_property
    def renyi(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the orders and the Renyi divergence of one sampled release at each, both [orders]."""
        dp = self._library
        accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_SPECIAL)
        event = dp.PoissonSampledDpEvent(self.probability, dp.GaussianDpEvent(self.noise_multiplier))
        logger = logging.getLogger("absl")
        disabled, logger.disabled = logger.disabled, True  # it names orders that it leaves out, which only loosens
        try:
            accountant.compose(event)
        finally:
            logger.disabled = disabled
        return accountant.orders, accountant.rdp

    def epsilon(self, releases: int) -> float:
        """Return epsilon after ``releases`` releases; 0 for none."""
        if releases == 0:
            return 0.0
        if self.probability is None:
            return float(self._library.get_epsilon_gaussian(self.noise_multiplier / math.sqrt(releases), self.delta))
        orders, divergence = self.renyi
        return float(self._library.rdp.compute_epsilon(orders, releases * divergence, self.delta)[0])

    def affordable(self, epsilon: float) -> int:
        """Return the largest number of releases whose epsilon is not above ``epsilon``."""
        return bisect_right(_RELEASES, epsilon, key=self.epsilon)
