"""A client's training samples."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.streams import stream
from fedscale_ext.training.augmentation.pictures import Augmentation
from fedscale_ext.training.augmentation.speech import SpeechAugmentation


class ClientSamples:
    """The training samples of one client on the training device.

    Attributes:
        x: Samples, float32 [n, C, H, W].
        y: Labels, int64 [n].
        augmentation: Random changes of the samples in each step; None: no changes.

    """

    def __init__(self, x: Tensor, y: Tensor, augmentation: Augmentation | SpeechAugmentation | None = None):
        self.x, self.y, self.augmentation = x, y, augmentation

    def __len__(self) -> int:
        return len(self.y)

    def views(self, rows: Sequence[np.ndarray], conf: ClientConfig) -> np.ndarray | None:
        """Draw the augmentation of each step's samples from the client's random stream.

        Args:
            rows: Row numbers of each step.
            conf: The client's settings.

        Returns:
            int64 [steps, largest batch, columns]; None without augmentation.

        """
        if self.augmentation is None:
            return None
        rng = stream(conf.seed, conf.round, conf.client_id, "augment")
        return self.augmentation.draw(len(rows), max(map(len, rows)), rng)
