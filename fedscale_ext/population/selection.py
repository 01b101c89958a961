"""Who takes part in a round."""

import numpy as np


def select(eligible: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Sorted ids (1..N, int64) of ``count`` clients drawn uniformly from those with ``eligible[id - 1]``.

    All of them where there are no more than wanted.
    """
    candidates = np.flatnonzero(eligible)
    if len(candidates) > count:
        candidates = rng.choice(candidates, size=count, replace=False, shuffle=False)
    return np.sort(candidates).astype(np.int64) + 1


def select_from_groups(eligible: np.ndarray, strata: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """As :func:`select`, from each group of ``strata`` int64 [clients] its quota (:func:`quotas`)."""
    if int(eligible.sum()) <= count:
        return np.flatnonzero(eligible).astype(np.int64) + 1
    drawn = [rng.choice(group, quota, replace=False) for group, quota in quotas(eligible, strata, count, rng)]
    return np.sort(np.concatenate(drawn)).astype(np.int64) + 1


def quotas(
    eligible: np.ndarray, strata: np.ndarray, count: int, rng: np.random.Generator
) -> list[tuple[np.ndarray, int]]:
    """The eligible clients (numbers - 1, ascending) of each group of ``strata``, and how many of them to take: as many
    as the group's share of the eligible clients gives; what is left after rounding down goes to groups by chance, in
    proportion to their remainders. ``count`` is no more than there are eligible clients."""
    groups = [np.flatnonzero(eligible & (strata == group)) for group in np.unique(strata)]
    num_eligible = sum(map(len, groups))
    shares = np.array([count * len(group) / num_eligible for group in groups])
    counts = np.floor(shares + 1e-9).astype(np.int64)
    remaining = count - int(counts.sum())
    if remaining:
        remainders = np.maximum(shares - counts, 0.0)
        counts[rng.choice(len(groups), remaining, replace=False, p=remainders / remainders.sum())] += 1
    return list(zip(groups, counts.tolist(), strict=True))


def select_each(eligible: np.ndarray, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Sorted ids (1..N, int64) of the clients with ``eligible[id - 1]`` whose own coin of ``probability`` says yes.

    Every client has a coin, whoever is eligible (Poisson sampling).
    """
    return np.flatnonzero(eligible & (rng.random(len(eligible)) < probability)).astype(np.int64) + 1
