"""Clients in groups by what their devices can compute. Equal devices are in one group."""

import numpy as np

from fedscale_ext.core.missing_values import ratios
from fedscale_ext.util.quantities import quantity

QUARTERS = ("weakest", "second", "third", "strongest")
_FEW = 6  # up to so many different capacities are a group each


def kinds_of(capacity: np.ndarray) -> np.ndarray | None:
    """The different values of ``capacity`` [clients], rising; None where there are too many for a group each."""
    kinds = np.unique(capacity)
    return kinds if len(kinds) <= _FEW else None


def kind_names(kinds: np.ndarray) -> list[str]:
    """Names of the kinds of devices: their MACs per sample, with enough digits to tell them apart."""
    names = [_macs(quantity(kind)) for kind in kinds.tolist()]
    return names if len(set(names)) == len(names) else [f"{kind:,.0f} MACs" for kind in kinds.tolist()]


def _macs(number: str) -> str:
    return f"{number}MACs" if " " in number else f"{number} MACs"


def tier_of(capacity: np.ndarray, tiers: int = len(QUARTERS)) -> np.ndarray:
    """int64[clients]: the tier of each client, the weakest 0, by capacity [clients].

    Tiers are of equal size where capacities differ. Clients of equal capacity are in one tier, that of their middle.
    """
    _, which, counts = np.unique(capacity, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    middle_twice = 2 * last - counts + 1
    return (middle_twice * tiers // max(1, 2 * len(capacity)))[which]


def device_groups(capacity: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Each client's group, int64 [clients], and the groups' names, the weakest first.

    Each capacity is a group where these are few; otherwise the groups are quarters of the clients.
    """
    kinds = kinds_of(capacity)
    if kinds is None:
        return tier_of(capacity), list(QUARTERS)
    return np.searchsorted(kinds, capacity), kind_names(kinds)


def group_means(values: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """float64[groups]: means of ``values`` [clients] over each group's clients, without NaNs; NaN where none is left.

    ``group`` int64 [clients] numbers each client's.
    """
    known = ~np.isnan(values)
    counts = np.bincount(group[known], minlength=groups)
    sums = np.bincount(group[known], values[known], groups)
    return ratios(sums, counts)
