"""Who has how many samples of which class."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedscale_ext.data.importing.shift import shift_words
from fedscale_ext.data.layout.class_names import class_names
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.data.layout.files import read_description
from fedscale_ext.data.store import DataSet


@dataclass(frozen=True)
class Overview:
    """The samples of a data set by client and class.

    Attributes:
        train: Training samples, int64 [clients, classes].
        test: Test samples, int64 [clients, classes].
        clients: Names of the clients.
        classes: Names of the classes; their numbers where they have none.
        examples: Row of the first sample of each class, -1 for a class without one: int64 [classes].

    """

    train: np.ndarray
    test: np.ndarray
    clients: Sequence[str]
    classes: Sequence[str]
    examples: np.ndarray

    @property
    def labels_per_client(self) -> np.ndarray:
        """Return how many classes each client trains on, int64 [clients]."""
        return (self.train > 0).sum(1)


def overview(data: DataSet, folder: str | Path) -> Overview:
    """Count the samples of an opened data set; ``folder`` has the names of its labels."""
    classes = class_names({"data_dir": folder, "data_set": data.data_set}, data.num_classes)
    examples = np.full(data.num_classes, -1, dtype=np.int64)
    for row in data.train.rows[::-1]:
        examples[data.y[row]] = row
    return Overview(_counts(data, test=False), _counts(data, test=True), data.client_names, classes, examples)


def shift_of(folder: str | Path) -> str:
    """The feature shift of a data folder in words; "" where it has none."""
    settings = read_description(data_folder(folder)).get("settings", {}).get("shift")
    return shift_words(settings) if isinstance(settings, dict) else ""


def _counts(data: DataSet, *, test: bool) -> np.ndarray:
    part = data.test if test else data.train
    owner = np.repeat(np.arange(data.num_clients), part.sizes)
    counts = np.zeros((data.num_clients, data.num_classes), dtype=np.int64)
    np.add.at(counts, (owner, data.y[part.rows]), 1)
    return counts
