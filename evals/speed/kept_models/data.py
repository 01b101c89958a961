"""The clients' samples, written once for both sides: noise for times, Fashion-MNIST for accuracies.

A folder in FedScale's layout is what our job reads. ``clients.npz`` has the same samples as our job normalises them, in
the order of our clients: x_train float32 [clients, n, C, H, W], y_train int64 [clients, n], x_test and y_test.
``about.json`` says what they are, and the first folder's name.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from evals.speed.data import prepare
from evals.speed.kept_models.work import CLIENTS
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.allocation import Allocation
from fedscale_ext.data.importing.writer import LayoutWriter
from fedscale_ext.data.store import open_data_set

TRAIN, TEST = 200, 100  # of each client
ALPHA = 0.3  # Dirichlet parameter of a client's mix of classes
_ABOUT = "about.json"  # written last


def noise(folder: Path) -> Path:
    """Make sure that ``folder`` holds the noise that `python -m evals.speed` trains on, for fewer clients."""
    about = {"data_set": "femnist", "layout": "femnist", "clients": CLIENTS, "train": TRAIN, "test": 2, "seed": 1}
    if not _there(folder, about):
        prepare(folder, clients=CLIENTS, train=TRAIN, test=2)
        _finish(folder, about)
    return folder


def fashion(folder: Path, source: Path, seed: int) -> Path:
    """Make sure that ``folder`` holds a partition of Fashion-MNIST.

    Each client draws a mix of classes from Dirichlet(ALPHA), and its training and test samples by that mix without
    putting back. A class that has run out is drawn no more.

    Args:
        folder: Where it belongs.
        source: npz with ``x_train`` uint8 [n, 28, 28], ``y_train`` [n], and ``x_test`` and ``y_test``.
        seed: Seed of the draws.

    Raises:
        UserError: ``source`` cannot be read or lacks one of these.

    """
    about = {
        "data_set": "fashionmnist",
        "layout": "layout",
        "clients": CLIENTS,
        "train": TRAIN,
        "test": TEST,
        "seed": seed,
    }
    if _there(folder, about):
        return folder
    try:
        with np.load(source, allow_pickle=False) as content:
            arrays = {name: content[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{source} is no npz with x_train, y_train, x_test and y_test: {error}") from error
    settings = {**about, "alpha": ALPHA}
    with LayoutWriter(
        folder / about["layout"], "fashionmnist", "Fashion-MNIST", how="evals.speed.kept_models", settings=settings
    ) as writer:
        for client, split, rows in partition(arrays["y_train"], arrays["y_test"], seed):
            for row in rows:
                pixels, label = arrays[f"x_{split}"][row][None], int(arrays[f"y_{split}"][row])
                writer.add(pixels, label, f"client{client:02d}", test=split == "test")
        writer.finish(Allocation(seed=seed, test_fraction=0.0), (1, 28, 28))
    _finish(folder, about)
    return folder


def partition(train: np.ndarray, test: np.ndarray, seed: int) -> Iterator[tuple[int, str, list[int]]]:
    """Yield (client, "train" or "test", rows) of each client, from the labels of both splits."""
    rng = np.random.default_rng(seed)
    classes = int(train.max()) + 1
    left = {
        split: [rng.permutation(np.flatnonzero(labels == label)).tolist() for label in range(classes)]
        for split, labels in (("train", train), ("test", test))
    }
    for client in range(CLIENTS):
        mix = rng.dirichlet([ALPHA] * classes)
        for split, count in (("train", TRAIN), ("test", TEST)):
            rows = []
            for _ in range(count):
                weights = np.array(
                    [share if rest else 0.0 for share, rest in zip(mix + 1e-9, left[split], strict=True)]
                )
                rows.append(left[split][int(rng.choice(classes, p=weights / weights.sum()))].pop())
            yield client, split, rows


def _there(folder: Path, about: dict[str, Any]) -> bool:
    path = folder / _ABOUT
    return path.is_file() and about.items() <= json.loads(path.read_text(encoding="utf-8")).items()


def _finish(folder: Path, about: dict[str, Any]) -> None:
    """Write the samples as our job has them, and what they are."""
    data = open_data_set(folder / about["layout"], about["data_set"])
    arrays = {}
    for split, rows_of in (("train", data.train_rows), ("test", data.test_rows)):
        pairs = [data.tensors(rows_of(client)) for client in range(1, data.num_clients + 1)]
        arrays[f"x_{split}"] = np.stack([x.numpy() for x, _ in pairs])
        arrays[f"y_{split}"] = np.stack([y.numpy() for _, y in pairs])
    np.savez(folder / "clients.npz", **arrays)
    content = {**about, "shape": list(data.input_shape), "classes": data.num_classes}
    temporary = folder / f"{_ABOUT}.tmp"
    temporary.write_text(json.dumps(content), encoding="utf-8")
    os.replace(temporary, folder / _ABOUT)
