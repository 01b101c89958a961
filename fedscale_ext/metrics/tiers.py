"""Clients in tiers of equal size, by what their devices can compute."""

import numpy as np

TIERS = ("weakest", "second", "third", "strongest")


def tier_of(capacity: np.ndarray, tiers: int = len(TIERS)) -> np.ndarray:
    """int64[clients]: the tier of each client, the weakest 0, by capacity [clients] (equal ones: by number)."""
    rank = np.empty(len(capacity), dtype=np.int64)
    rank[np.argsort(capacity, kind="stable")] = np.arange(len(capacity))
    return rank * tiers // max(1, len(capacity))


def group_means(values: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """float64[groups]: means of ``values`` [clients] over each group's clients, without NaNs; NaN where none is left.

    ``group`` int64 [clients] numbers each client's.
    """
    known = ~np.isnan(values)
    counts = np.bincount(group[known], minlength=groups)
    sums = np.bincount(group[known], values[known], groups)
    return np.divide(sums, counts, out=np.full(groups, np.nan), where=counts > 0)
