"""How clients' test samples of each class were predicted: confusion matrices, without their zeros."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

_COLUMNS = ("sizes", "cells", "counts")
_TYPES = (torch.uint8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix per client, as the cells that are not zero.

    A client has at most as many cells as test samples, however many classes there are.

    Attributes:
        classes: Number of classes.
        offsets: int64 [clients + 1]. The cells of client ``c`` are ``offsets[c - 1]:offsets[c]``.
        cells: int64 [cells], ``true * classes + predicted``, ascending within a client.
        counts: int64 [cells], test samples of each cell, at least 1.

    """

    classes: int
    offsets: np.ndarray
    cells: np.ndarray
    counts: np.ndarray

    @property
    def num_clients(self) -> int:
        """Number of clients, also those without samples."""
        return len(self.offsets) - 1

    @property
    def owner(self) -> np.ndarray:
        """Index of each cell's client, int64 [cells]."""
        return np.repeat(np.arange(self.num_clients), np.diff(self.offsets))

    @property
    def true(self) -> np.ndarray:
        """Class of each cell's samples, int64 [cells]."""
        return self.cells // self.classes

    @property
    def predicted(self) -> np.ndarray:
        """Class that each cell's samples were taken for, int64 [cells]."""
        return self.cells % self.classes

    @property
    def samples(self) -> np.ndarray:
        """Test samples of each client, int64 [clients]."""
        return self._sums(self.counts)

    @property
    def correct(self) -> np.ndarray:
        """Correct predictions of each client, int64 [clients]."""
        return self._sums(np.where(self.true == self.predicted, self.counts, 0))

    @property
    def tested_classes(self) -> tuple[np.ndarray, np.ndarray]:
        """Index of the client, and class, of each pair of a client and a class among its samples, int64 [pairs] each.

        Clients ascend, and the classes of one client.
        """
        client, true = self.owner, self.true
        new = np.ones(len(true), dtype=bool)
        new[1:] = (client[1:] != client[:-1]) | (true[1:] != true[:-1])
        return client[new], true[new]

    def _sums(self, values: np.ndarray) -> np.ndarray:
        return np.diff(np.concatenate([[0], np.cumsum(values)])[self.offsets])

    def over_all(self) -> "Confusion":
        """Return the sum over all clients, as that of a single one."""
        return gathered(np.zeros(len(self.cells), dtype=np.int64), self.cells, self.counts, 1, self.classes)

    def of(self, indices: Sequence[int] | np.ndarray) -> "Confusion":
        """Return that of some clients, in their order; ``indices`` are client - 1."""
        chosen = np.asarray(indices, dtype=np.int64)
        sizes = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        at = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], sizes)
        return Confusion(self.classes, offsets, self.cells[at], self.counts[at])


def of_samples(owner: np.ndarray, true: np.ndarray, predicted: np.ndarray, clients: int, classes: int) -> Confusion:
    """Count the samples of ``clients`` clients.

    Args:
        owner: int64 [samples], index of each sample's client, from 0.
        true: int64 [samples], its class.
        predicted: int64 [samples], the class that it was taken for.
        clients: Number of clients.
        classes: Number of classes.

    """
    return gathered(owner, true * classes + predicted, np.ones(len(owner), dtype=np.int64), clients, classes)


def gathered(owner: np.ndarray, cells: np.ndarray, counts: np.ndarray, clients: int, classes: int) -> Confusion:
    """Put cells in any order together; those of one client that are equal are added up.

    Args:
        owner: int64 [n], index of each cell's client, from 0.
        cells: int64 [n], ``true * classes + predicted``.
        counts: int64 [n], samples of each cell.
        clients: Number of clients.
        classes: Number of classes.

    """
    # two keys instead of one number: the square of many classes, times many clients, may pass 64 bits
    order = np.lexsort((cells, owner))
    owner, cells, counts = owner[order], cells[order], counts[order]
    first = np.ones(len(owner), dtype=bool)
    first[1:] = (owner[1:] != owner[:-1]) | (cells[1:] != cells[:-1])
    starts = np.flatnonzero(first)
    sums = np.add.reduceat(counts, starts) if len(starts) else counts
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner[starts], minlength=clients))])
    return Confusion(classes, offsets.astype(np.int64), cells[starts].astype(np.int64), sums.astype(np.int64))


def concatenated(parts: Sequence[Confusion]) -> Confusion:
    """Put the clients of parts of equal classes one after another."""
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    cells, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("cells", "counts"))
    return Confusion(parts[0].classes, offsets, cells, counts)


def to_tensors(confusion: Confusion) -> dict[str, torch.Tensor]:
    """Return a matrix as tensors: how many cells each client has, the cells, and their counts.

    Each is of the smallest type that holds it: of up to 181 classes, a test sample takes three bytes at most, but for
    clients of more than 255 samples a class.
    """
    columns = (np.diff(confusion.offsets), confusion.cells, confusion.counts)
    return {name: torch.from_numpy(smallest(column)) for name, column in zip(_COLUMNS, columns, strict=True)}


def from_tensors(tensors: Mapping[str, torch.Tensor], classes: int) -> Confusion:
    """Return the matrix of :func:`to_tensors`; ValueError, which says what is wrong, for anything else."""
    if tensors.keys() != set(_COLUMNS):
        raise ValueError(f"confusion matrices are {', '.join(_COLUMNS)} and nothing else")
    if any(tensor.dim() != 1 or tensor.dtype not in _TYPES for tensor in tensors.values()):
        raise ValueError("confusion matrices are columns of whole numbers")
    sizes, cells, counts = (tensors[name].numpy().astype(np.int64) for name in _COLUMNS)
    if (sizes < 0).any() or (sizes > len(cells)).any() or sizes.sum() != len(cells) or len(cells) != len(counts):
        raise ValueError("confusion matrices whose numbers of cells do not add up")
    if ((cells < 0) | (cells >= classes * classes)).any() or (counts < 1).any():
        raise ValueError(f"confusion matrices of {classes} classes with impossible cells")
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    begins = np.zeros(len(cells) + 1, dtype=bool)
    begins[offsets] = True
    if not (begins[1:-1] | (np.diff(cells) > 0)).all():
        raise ValueError("confusion matrices whose cells do not ascend")
    return Confusion(classes, offsets, cells, counts)


def smallest(counts: np.ndarray) -> np.ndarray:
    """Return whole numbers from 0 on in the smallest type that holds them all."""
    most = counts.max(initial=0)
    fitting = (dtype for dtype in (np.uint8, np.int16, np.int32) if most <= np.iinfo(dtype).max)
    return counts.astype(next(fitting, np.int64))
