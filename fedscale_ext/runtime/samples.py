"""What a client trains on, and which of its samples each step sees."""

from collections.abc import Iterator

import numpy as np
from torch import Tensor


class ClientSamples:
    """The training samples of one client on the training device: x [n, C, H, W] float32, y [n] int64."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)


def batches(samples: int, batch_size: int, steps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Row numbers of ``steps`` batches: shuffled epochs whose incomplete last batch is left out.

    A client with fewer samples than a batch trains on all of them in each step (FedScale's loader
    drops its only, incomplete batch and never ends).
    """
    size = min(samples, batch_size)
    done = 0
    while done < steps:
        order = rng.permutation(samples)
        for start in range(0, samples - size + 1, size):
            if done == steps:
                return
            yield order[start : start + size]
            done += 1
