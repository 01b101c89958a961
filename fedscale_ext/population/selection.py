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


def select_each(eligible: np.ndarray, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Sorted ids (1..N, int64) of the clients with ``eligible[id - 1]`` whose own coin of ``probability`` says yes.

    Every client has a coin, whoever is eligible (Poisson sampling).
    """
    return np.flatnonzero(eligible & (rng.random(len(eligible)) < probability)).astype(np.int64) + 1
