"""Means and ratios of arrays in which NaN stands for a value that is missing."""

import numpy as np


def mean_of_known(values: np.ndarray) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def ratios(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return ``part / whole``, float64 [n]; NaN where ``whole`` is 0."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
