"""Dirichlet partitions: each label's samples are shared out by proportions drawn from Dirichlet(alpha)."""

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream

_TRIES = 1000


def dirichlet(labels: np.ndarray, clients: int, alpha: float, seed: int) -> np.ndarray:
    """Draw the client of each sample, int64 [n]; the largest clients give samples to empty ones."""
    client = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rng = stream(seed, "partition", "dirichlet", int(label))
        rows = rng.permutation(np.flatnonzero(labels == label))
        log = log_gamma(rng, alpha, (clients,))
        share = np.exp(log - log.max())
        edges = np.cumsum(share) / share.sum()
        client[rows] = np.searchsorted(edges[:-1], (np.arange(len(rows)) + 0.5) / len(rows))
    sizes = np.bincount(client, minlength=clients)
    for empty in np.flatnonzero(sizes == 0):
        giver = int(np.argmax(sizes))
        client[np.flatnonzero(client == giver)[-1]] = empty
        sizes[giver] -= 1
        sizes[empty] += 1
    return client


def dirichlet_at_least(labels: np.ndarray, clients: int, alpha: float, seed: int, least: int) -> np.ndarray:
    """Draw the client of each sample, int64 [n]; each client has ``least`` samples or more.

    As in HypeMeFed's public code, a client with its even share of all samples gets nothing of
    the labels that follow, and a partition in which somebody has too few is drawn anew. That code draws for ever; here
    the best of 1,000 draws is mended: whoever has too few gets more of its own most frequent label, from whoever has
    most of that.
    """
    if least * clients > len(labels):
        raise UserError(
            f"{len(labels)} samples do not give {clients} clients {least} each: ask for fewer clients or samples"
        )
    present, sizes = np.unique(labels, return_counts=True)
    rng = stream(seed, "partition", "dirichlet at least")
    best = _draw(sizes, clients, alpha, rng)
    for _ in range(_TRIES - 1):
        if best.sum(1).min() >= least:
            break
        best = max(best, _draw(sizes, clients, alpha, rng), key=lambda counts: counts.sum(1).min())
    _mend(best, least)
    client = np.empty(len(labels), dtype=np.int64)
    for column, label in enumerate(present):
        rows = np.flatnonzero(labels == label)
        mixed = stream(seed, "partition", "dirichlet at least", "samples", int(label)).permutation(rows)
        client[mixed] = np.repeat(np.arange(clients), best[:, column])
    return client


def dirichlet_equal(labels: np.ndarray, clients: int, alpha: float, seed: int, each: int) -> np.ndarray:
    """Draw the client of each sample, int64 [n]; each client has exactly ``each`` samples. -1 marks the rest.

    Each client draws proportions of the labels from Dirichlet(alpha), and takes its samples by these (Hsu et al. 2019);
    of a label that the clients before it, in random order, have used up, it takes others by the rest of its
    proportions.
    """
    if each * clients > len(labels):
        raise UserError(
            f"{len(labels)} samples do not give {clients} clients {each} each: ask for fewer clients or samples"
        )
    present, left = np.unique(labels, return_counts=True)
    sizes = left.copy()
    rng = stream(seed, "partition", "dirichlet equal")
    draws = log_gamma(rng, alpha, (clients, len(present)))
    counts = np.zeros(draws.shape, dtype=np.int64)
    for owner in rng.permutation(clients):
        while (lacks := each - counts[owner].sum()) > 0:
            log = np.where(left > 0, draws[owner], -np.inf)
            share = np.exp(log - log.max())
            edges = np.rint(np.cumsum(share) / share.sum() * lacks).astype(np.int64)
            taken = np.minimum(np.diff(edges, prepend=0), left)
            counts[owner] += taken
            left -= taken
    client = np.full(len(labels), -1, dtype=np.int64)
    for column, label in enumerate(present):
        rows = np.flatnonzero(labels == label)
        mixed = stream(seed, "partition", "dirichlet equal", "samples", int(label)).permutation(rows)
        client[mixed[: sizes[column] - left[column]]] = np.repeat(np.arange(clients), counts[:, column])
    return client


def log_gamma(rng: np.random.Generator, alpha: float, shape: tuple[int, ...]) -> np.ndarray:
    """Draw logarithms of Gamma(alpha), float64 of ``shape``. Such draws, divided by their sum, are Dirichlet.

    Gamma(a) = Gamma(a + 1) * U^(1/a): in logarithms they survive a tiny alpha, where plain draws underflow to 0 / 0.
    """
    return np.log(rng.standard_gamma(alpha + 1.0, shape)) + np.log1p(-rng.random(shape)) / alpha


def _draw(sizes: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Samples of each client and label, int64 [clients, labels], for ``sizes`` samples of each label."""
    even, have = sizes.sum() / clients, np.zeros(clients, dtype=np.int64)
    counts = np.zeros((clients, len(sizes)), dtype=np.int64)
    for column, log in enumerate(log_gamma(rng, alpha, (len(sizes), clients))):
        log[have >= even] = -np.inf
        edges = np.cumsum(np.exp(log - log.max()))
        edges = np.rint(edges / edges[-1] * sizes[column]).astype(np.int64)
        counts[0, column] = edges[0]
        counts[1:, column] = edges[1:] - edges[:-1]
        have += counts[:, column]
    return counts


def _mend(counts: np.ndarray, least: int) -> None:
    """Move samples until each row of ``counts`` [clients, labels] has ``least``; there are enough for that."""
    for poor in np.flatnonzero(counts.sum(1) < least):
        while (lacks := least - counts[poor].sum()) > 0:
            spare = counts.sum(1) - least
            spare_counts = np.minimum(counts, np.maximum(spare, 0)[:, None])  # what each could give of each label
            available = np.flatnonzero(spare_counts.any(0))
            label = available[np.argmax(counts[poor, available])]
            giver = int(np.argmax(spare_counts[:, label]))
            moved = min(int(lacks), int(spare_counts[giver, label]))
            counts[giver, label] -= moved
            counts[poor, label] += moved
