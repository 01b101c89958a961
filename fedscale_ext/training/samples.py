"""What a client trains on."""

from argparse import Namespace
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from fedscale_ext.core.streams import stream
from fedscale_ext.training.augment import Augmentation
from fedscale_ext.training.speech_augment import SpeechAugmentation


class ClientSamples:
    """The training samples of one client on the training device: x [n, C, H, W] float32, y [n] int64, and how
    its samples are changed in each step."""

    def __init__(self, x: Tensor, y: Tensor, augmentation: Augmentation | SpeechAugmentation | None = None):
        self.x, self.y, self.augmentation = x, y, augmentation

    def __len__(self) -> int:
        return len(self.y)

    def views(self, rows: Sequence[np.ndarray], conf: Namespace) -> np.ndarray | None:
        """How the samples at ``rows`` of each step are seen, from the client's own stream: [steps, largest batch,
        columns]; None: as they are."""
        if self.augmentation is None:
            return None
        rng = stream(conf.seed, conf.round, conf.client_id, "augment")
        return self.augmentation.draw(len(rows), max(map(len, rows)), rng)
