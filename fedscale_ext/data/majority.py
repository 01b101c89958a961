"""What clients reach without a model: they predict the most frequent training label, each its own or all the same."""

import numpy as np

from fedscale_ext.data.store import ClientRows, DataSet


def majority_correct(data: DataSet) -> np.ndarray:
    """Count each client's test samples that have its most frequent training label, int64 [clients].

    Of equally frequent labels the smallest counts; a client without training samples is right on none.
    """
    owner = np.repeat(np.arange(data.num_clients), data.test.sizes)
    return _correct(data, majority_labels(data.train, data.y)[owner])


def most_frequent_correct(data: DataSet) -> np.ndarray:
    """Count each client's test samples that have the most frequent training label of all clients, int64 [clients].

    Of equally frequent labels the smallest counts; without any training samples all are wrong.
    """
    labels = data.y[data.train.rows]
    label = int(np.bincount(labels).argmax()) if len(labels) else -1
    return _correct(data, np.full(len(data.test.rows), label))


def disjoint_clients(data: DataSet) -> int:
    """Return the number of clients none of whose test labels is among their training labels.

    Clients without training or test samples do not count. A client that learns only from its own samples gets all its
    test samples wrong here.
    """
    classes = data.num_classes
    train = np.repeat(np.arange(data.num_clients), data.train.sizes) * classes + data.y[data.train.rows]
    owner = np.repeat(np.arange(data.num_clients), data.test.sizes)
    seen = np.isin(owner * classes + data.y[data.test.rows], train)
    shared = np.bincount(owner[seen], minlength=data.num_clients) > 0
    return int(((data.train.sizes > 0) & (data.test.sizes > 0) & ~shared).sum())


def disjoint_note(data: DataSet) -> str | None:
    """Return a sentence about :func:`disjoint_clients`; None for none."""
    if not (count := disjoint_clients(data)):
        return None
    return (
        f"{count:,} of {data.num_clients:,} clients have no test label among their training labels: personal models "
        "cannot be right there"
    )


def _correct(data: DataSet, predicted: np.ndarray) -> np.ndarray:
    """int64 [clients]: test samples of each client that have the ``predicted`` label, int64 [test samples]."""
    owner = np.repeat(np.arange(data.num_clients), data.test.sizes)
    right = data.y[data.test.rows] == predicted
    return np.bincount(owner[right], minlength=data.num_clients).astype(np.int64)


def majority_labels(rows: ClientRows, y: np.ndarray) -> np.ndarray:
    """Return the most frequent label in each client's rows of ``y`` int64 [samples]: int64 [clients], -1 for none."""
    clients = len(rows.offsets) - 1
    majority = np.full(clients, -1, dtype=np.int64)
    if not len(rows.rows):
        return majority
    labels = y[rows.rows]
    classes = int(labels.max()) + 1
    owner = np.repeat(np.arange(clients), rows.sizes)
    pairs, counts = np.unique(owner * classes + labels, return_counts=True)
    order = np.lexsort((pairs, -counts, pairs // classes))  # by client, its most frequent label first
    owners, first = np.unique(pairs[order] // classes, return_index=True)
    majority[owners] = pairs[order][first] % classes
    return majority
