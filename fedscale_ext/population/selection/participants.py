"""Selection of a round's participants."""

import numpy as np


def select(eligible: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw clients uniformly.

    Args:
        eligible: Which clients may be drawn, bool [clients].
        count: Number of clients to draw.
        rng: The random stream.

    Returns:
        Sorted ids (1..N), int64 [count]; all eligible clients if there are no more.

    """
    candidates = np.flatnonzero(eligible)
    if len(candidates) > count:
        candidates = rng.choice(candidates, size=count, replace=False, shuffle=False)
    return np.sort(candidates).astype(np.int64) + 1


def select_from_groups(eligible: np.ndarray, group_of: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw clients uniformly within groups, from each its quota (:func:`quotas`).

    Args:
        eligible: Which clients may be drawn, bool [clients].
        group_of: The group of each client, int64 [clients].
        count: Number of clients to draw.
        rng: The random stream.

    Returns:
        Sorted ids (1..N), int64 [count]; all eligible clients if there are no more.

    """
    if int(eligible.sum()) <= count:
        return np.flatnonzero(eligible).astype(np.int64) + 1
    drawn = [rng.choice(group, quota, replace=False) for group, quota in quotas(eligible, group_of, count, rng)]
    return np.sort(np.concatenate(drawn)).astype(np.int64) + 1


def quotas(
    eligible: np.ndarray, group_of: np.ndarray, count: int, rng: np.random.Generator
) -> list[tuple[np.ndarray, int]]:
    """Divide a number of participants among groups, in proportion to their eligible clients.

    Shares are rounded down. The rest goes to groups by chance, in proportion to their remainders.

    Args:
        eligible: Which clients may be drawn, bool [clients].
        group_of: The group of each client, int64 [clients].
        count: Number of clients to draw, at most the number of eligible ones.
        rng: The random stream.

    Returns:
        For each group its eligible clients (id - 1, ascending) and its quota.

    """
    groups = [np.flatnonzero(eligible & (group_of == group)) for group in np.unique(group_of)]
    num_eligible = sum(map(len, groups))
    shares = np.array([count * len(group) / num_eligible for group in groups])
    counts = np.floor(shares + 1e-9).astype(np.int64)
    remaining = count - int(counts.sum())
    if remaining:
        remainders = np.maximum(shares - counts, 0.0)
        counts[rng.choice(len(groups), remaining, replace=False, p=remainders / remainders.sum())] += 1
    return list(zip(groups, counts.tolist(), strict=True))


def select_each(eligible: np.ndarray, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Draw each client independently (Poisson sampling).

    Args:
        eligible: Which clients may be drawn, bool [clients].
        probability: Chance of each eligible client.
        rng: The random stream; it draws one number per client, eligible or not.

    Returns:
        Sorted ids (1..N), int64.

    """
    return np.flatnonzero(eligible & (rng.random(len(eligible)) < probability)).astype(np.int64) + 1
