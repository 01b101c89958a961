"""Epsilon of the released models, by Google's dp-accounting library.

Neighbours differ in one client's data: it is replaced by nothing, so that the client's clipped change is
zero ("zero-out"; dp-accounting calls it REPLACE_SPECIAL). A client's device, its number of samples and
when it is online stay, so nothing but its change can tell the two apart.
"""

import logging
import math
from functools import cached_property

import numpy as np

from fedscale_ext.core.errors import UserError

NEEDS_ACCOUNTING = (
    "differential privacy needs the package dp-accounting: install it with pip install 'fedscale_ext[privacy]', "
    "in a checkout with pip install -c constraints.txt -e '.[privacy]'"
)
_MOST = 1 << 20  # releases that anybody asks about


class Accountant:
    """Epsilon at ``delta`` after a number of releases with noise of ``noise_multiplier`` times their sensitivity.

    ``probability``: with which a client is part of each release, by a coin of its own that stays secret
    (Poisson sampling, Renyi accountant: an upper bound). None: the releases counted are those that the
    client was part of, which may be public (exact).
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
        """Orders, and the Renyi divergence of one sampled release at each."""
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
        """Epsilon after so many releases; 0 for none."""
        if releases == 0:
            return 0.0
        if self.probability is None:
            return float(self._library.get_epsilon_gaussian(self.noise_multiplier / math.sqrt(releases), self.delta))
        orders, divergence = self.renyi
        return float(self._library.rdp.compute_epsilon(orders, releases * divergence, self.delta)[0])

    def affordable(self, epsilon: float) -> int:
        """The most releases whose epsilon is not above ``epsilon``."""
        enough, too_many = 0, 1
        while too_many <= _MOST and self.epsilon(too_many) <= epsilon:
            enough, too_many = too_many, 2 * too_many
        while too_many - enough > 1:
            middle = (enough + too_many) // 2
            enough, too_many = (middle, too_many) if self.epsilon(middle) <= epsilon else (enough, middle)
        return enough
