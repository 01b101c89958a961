"""How paths compare: Pareto fronts, and how well two rankings of them agree (FedorAS, section 4.7)."""

from collections.abc import Sequence

import numpy as np


def pareto(macs: np.ndarray, scores: np.ndarray) -> list[int]:
    """Places of those that nothing beats in score at as many MACs or fewer, cheapest first; NaN is never among them.

    ``macs`` and ``scores``: float64 [paths].
    """
    front: list[int] = []
    best = -np.inf
    for place in np.lexsort((-scores, macs)).tolist():
        if scores[place] > best:
            best = scores[place]
            front.append(place)
    return front


def kendall_tau(one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray) -> float:
    """Kendall's tau-b of two scores of the same paths: 1 for the same ranking, -1 for the reverse. Paths without a
    finite score in both are left out; NaN where fewer than two remain, or one of the scores is the same for all."""
    from scipy.stats import kendalltau  # slow to import

    a, b = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    both = np.isfinite(a) & np.isfinite(b)
    if both.sum() < 2 or np.ptp(a[both]) == 0 or np.ptp(b[both]) == 0:
        return float("nan")
    return float(kendalltau(a[both], b[both]).statistic)
