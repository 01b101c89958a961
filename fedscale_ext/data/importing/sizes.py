"""Partitions whose clients differ in how many samples they have, not in their mix of labels.

Each client has one sample, and the others are shared out in proportion to a function of the client's number n, from 1
on. The rules are those of Flower Datasets' partitioners of these names.
"""

from collections.abc import Callable

import numpy as np

from fedscale_ext.core.streams import stream

RULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda number: number,
    "square": lambda number: number**2,
    "exponential": lambda number: np.exp(number - number.max()),  # in proportion to exp(n), and never infinite
}


def sizes(samples: int, clients: int, rule: str) -> np.ndarray:
    """Return the samples of each client, int64 [clients], in ascending order; they add up to ``samples``."""
    weights = RULES[rule](np.arange(1, clients + 1, dtype=np.float64))
    edges = np.rint(np.cumsum(weights[::-1]) / weights.sum() * (samples - clients)).astype(np.int64)
    return 1 + np.sort(np.diff(edges, prepend=0))


def by_size(samples: int, clients: int, rule: str, seed: int) -> np.ndarray:
    """Draw the client of each sample, int64 [samples]: any, but so many for each client."""
    client = np.empty(samples, dtype=np.int64)
    mixed = stream(seed, "partition", rule).permutation(samples)
    client[mixed] = np.repeat(np.arange(clients), sizes(samples, clients, rule))
    return client
