"""Who takes part in a round."""

import numpy as np


def select(eligible: np.ndarray, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Sorted ids (1..N, int64) of ``wanted`` clients drawn uniformly from those with ``eligible[id - 1]``.

    All of them where there are no more than wanted.
    """
    there = np.flatnonzero(eligible)
    if len(there) > wanted:
        there = rng.choice(there, size=wanted, replace=False, shuffle=False)
    return np.sort(there).astype(np.int64) + 1


def select_from_groups(eligible: np.ndarray, strata: np.ndarray, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """As :func:`select`, from each group of ``strata`` int64 [clients] its quota (:func:`quotas`)."""
    if int(eligible.sum()) <= wanted:
        return np.flatnonzero(eligible).astype(np.int64) + 1
    drawn = [rng.choice(group, count, replace=False) for group, count in quotas(eligible, strata, wanted, rng)]
    return np.sort(np.concatenate(drawn)).astype(np.int64) + 1


def quotas(
    eligible: np.ndarray, strata: np.ndarray, wanted: int, rng: np.random.Generator
) -> list[tuple[np.ndarray, int]]:
    """The eligible clients (numbers - 1, ascending) of each group of ``strata``, and how many of them to take: as many
    as the group's share of the eligible clients gives; what is left after rounding down goes to groups by chance, in
    proportion to their remainders. ``wanted`` is no more than there are eligible clients."""
    groups = [np.flatnonzero(eligible & (strata == group)) for group in np.unique(strata)]
    there = sum(map(len, groups))
    shares = np.array([wanted * len(group) / there for group in groups])
    counts = np.floor(shares + 1e-9).astype(np.int64)
    left = wanted - int(counts.sum())
    if left:
        remainders = np.maximum(shares - counts, 0.0)
        counts[rng.choice(len(groups), left, replace=False, p=remainders / remainders.sum())] += 1
    return list(zip(groups, counts.tolist(), strict=True))


def select_each(eligible: np.ndarray, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Sorted ids (1..N, int64) of the clients with ``eligible[id - 1]`` whose own coin of ``probability`` says yes.

    Every client has a coin, whoever is eligible (Poisson sampling).
    """
    return np.flatnonzero(eligible & (rng.random(len(eligible)) < probability)).astype(np.int64) + 1
