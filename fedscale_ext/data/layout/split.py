"""Which samples of a client are its test data."""

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream


def check_fraction(fraction: float) -> float:
    """Return the fraction; UserError unless it is in [0, 1)."""
    if not 0.0 <= fraction < 1.0:
        raise UserError(f"the test fraction must be at least 0 and below 1, not {fraction}")
    return float(fraction)


def held_out_count(samples: int, fraction: float) -> int:
    """Return the number of test samples of a client: rounded, at least 1, and at least 1 sample left to train on."""
    if fraction == 0.0 or samples < 2:
        return 0
    return min(samples - 1, max(1, int(fraction * samples + 0.5)))


def with_held_out(train: int, fraction: float) -> int:
    """Return the least number of samples that leaves ``train`` training samples beside the test samples."""
    samples = train
    while samples - held_out_count(samples, fraction) < train:
        samples += 1
    return samples


def held_out_mask(
    client: np.ndarray, clients: int, fraction: float, seed: int, labels: np.ndarray | None = None
) -> np.ndarray:
    """Draw each client's test samples.

    ``client``: int [n], index 0..clients-1 of each sample. Returns bool [n], True for a test sample.
    Client ``i`` (index i - 1) draws from its own stream, so other clients do not change its split. With
    ``labels`` int [n], its test samples have its own mix of classes: each class to within one sample.
    """
    check_fraction(fraction)
    mask = np.zeros(len(client), dtype=bool)
    rows, offsets = group(client, clients)
    for index in range(clients):
        client_rows = rows[offsets[index] : offsets[index + 1]]
        count = held_out_count(len(client_rows), fraction)
        if not count:
            continue
        rng = stream(seed, 0, index + 1, "test split")
        mixed = rng.permutation(client_rows)
        if labels is None:
            mask[mixed[:count]] = True
        else:
            in_classes = mixed[np.argsort(labels[mixed], kind="stable")]
            mask[in_classes[((np.arange(count) + rng.random()) * len(client_rows) / count).astype(np.int64)]] = True
    return mask


def group(client: np.ndarray, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Group row numbers by client: ``rows[offsets[i]:offsets[i + 1]]`` are, in order, those of index ``i``.

    ``client``: int [n] with -1 for rows that belong to nobody. Returns int64 [m] and int64 [clients + 1].
    """
    order = np.argsort(client, kind="stable")
    nobody = int(np.count_nonzero(client < 0))
    sizes = np.bincount(client[client >= 0], minlength=clients)
    offsets = np.zeros(clients + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return order[nobody:].astype(np.int64), offsets
