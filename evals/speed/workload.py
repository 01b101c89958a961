"""The models and the samples that the rows train, and a sum to compare what they trained.

Imported in the peers' environments too: nothing here needs more than torch, numpy and this package's models.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from evals.speed.task import CLASSES, SHAPE
from fedscale_ext import models


def module(name: str, seed: int = 1) -> nn.Module:
    """A named model of this package with initial weights that depend on the seed only."""
    spec = models.named_spec(name, SHAPE, CLASSES)
    result = models.build(spec)
    result.load_state_dict(models.initial_state(spec, seed))
    return result


def samples(folder: Path, *, mapped: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """x float32 [clients, samples, 1, 28, 28], normalised, and y int64 [clients, samples]."""
    mode = "r" if mapped else None
    return np.load(folder / "x.npy", mmap_mode=mode), np.load(folder / "y.npy", mmap_mode=mode)


def checksum(tensors: Iterable[torch.Tensor]) -> float:
    """Sum of magnitudes: equal for rows that did the same arithmetic."""
    return sum(float(tensor.detach().double().abs().sum()) for tensor in tensors if tensor.is_floating_point())
