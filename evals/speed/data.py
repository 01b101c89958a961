"""Random pictures in FEMNIST's layout, written once: what all rows train on. They mean nothing and say so."""

import json
import os
from pathlib import Path

import numpy as np

from evals.speed.task import CLASSES, CLIENTS, SAMPLES, SHAPE
from fedscale_ext.data.importing.allocation import Allocation
from fedscale_ext.data.importing.writer import LayoutWriter
from fedscale_ext.data.registry import normalisation

TEST_SAMPLES = 2  # per client: jobs that test before and after training have something to test
_DONE = "speed.json"  # written last


def prepare(folder: Path, *, clients: int = CLIENTS, train: int = SAMPLES, test: int = TEST_SAMPLES) -> Path:
    """Make sure that ``folder`` holds the data; returns it.

    ``femnist/`` is FedScale's layout (PNG files and csv files), which our job and upstream FedScale read;
    x.npy and y.npy are the same training samples as arrays, normalised, in the order of the csv.
    """
    about = {"clients": clients, "train": train, "test": test, "seed": 1, "shape": SHAPE, "classes": CLASSES}
    if (folder / _DONE).is_file() and json.loads((folder / _DONE).read_text(encoding="utf-8")) == json.loads(
        json.dumps(about)
    ):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DONE).unlink(missing_ok=True)
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (clients, train + test, *SHAPE), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, (clients, train + test))
    with LayoutWriter(
        folder / "femnist", "femnist", "random noise", how="evals.speed", settings=about, generated=True
    ) as writer:
        for client in range(clients):
            for sample in range(train + test):
                writer.add(
                    pixels[client, sample], int(labels[client, sample]), f"random{client:04d}", test=sample >= train
                )
        writer.finish(Allocation(seed=1, test_fraction=0.0), SHAPE)
    mean, std = (np.float32(values[0]) for values in normalisation("femnist", SHAPE[0]))
    np.save(folder / "x.npy", (pixels[:, :train].astype(np.float32) / np.float32(255) - mean) / std)
    np.save(folder / "y.npy", labels[:, :train])
    temporary = folder / f"{_DONE}.tmp"
    temporary.write_text(json.dumps(about), encoding="utf-8")
    os.replace(temporary, folder / _DONE)
    return folder
