"""The models and the samples that the rows train, and a sum to compare what they trained.

Imported in the peers' environments too: nothing here needs more than torch, numpy and this package's models.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from evals.speed.task import CLASSES, SHAPE
from fedscale_ext import models
from fedscale_ext.models.families.cnn import CNN


class UsualOrder(CNN):
    """The same network as anybody would write it: ReLU, then max-pool. Ours pools first, which costs less."""

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.linear2(functional.relu(self.linear1(x.flatten(1))))


def module(name: str, seed: int = 1, *, usual: bool = False) -> nn.Module:
    """A named model of this package with initial weights that depend on the seed only.

    ``usual``: as the peers' users write it, where this package's zoo has another order of operations.
    """
    spec = models.named_spec(name, SHAPE, CLASSES)
    result = UsualOrder(spec) if usual and spec.family == "cnn" else models.build(spec)
    result.load_state_dict(models.initial_state(spec, seed))
    return result


def samples(folder: Path, *, mapped: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """x float32 [clients, samples, 1, 28, 28], normalised, and y int64 [clients, samples]."""
    mode = "r" if mapped else None
    return np.load(folder / "x.npy", mmap_mode=mode), np.load(folder / "y.npy", mmap_mode=mode)


def checksum(tensors: Iterable[torch.Tensor]) -> float:
    """Sum of magnitudes: equal for rows that did the same arithmetic."""
    return sum(float(tensor.detach().double().abs().sum()) for tensor in tensors if tensor.is_floating_point())
