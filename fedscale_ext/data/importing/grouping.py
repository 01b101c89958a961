"""Fewer clients from a source that has many of its own: each new client has all samples of several of them."""

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream

GROUPED = "grouped"


def grouped(owner: np.ndarray, own_clients: int, clients: int, seed: int) -> np.ndarray:
    """Draw the client of each sample, int64 [n].

    Args:
        owner: int [n], index of the source's client that each sample is of.
        own_clients: Number of the source's clients.
        clients: Number of clients. Each gets as many of the source's clients as any other, to within one.
        seed: Of the draw.

    Raises:
        UserError: If the source has fewer clients.

    """
    if own_clients < clients:
        raise UserError(
            f"the source has {own_clients} clients of its own, which cannot be grouped into {clients}: ask for fewer"
        )
    group = np.empty(own_clients, dtype=np.int64)
    group[stream(seed, "partition", GROUPED).permutation(own_clients)] = np.arange(own_clients) * clients // own_clients
    return group[owner]
