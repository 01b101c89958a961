"""Random changes of pictures in training, as in FedScale's training transforms; tests never use them.

FedScale flips OpenImage (``flip``), and crops CIFAR after padding it by 4 black pixels, then flips it
(``flip_crop``; both in its ``dataloaders/utils_data.py``); FedorAS's CIFAR also sees RandAugment (``rand_flip_crop``,
:mod:`rand_augment`). Speech has an augmentation of its own (``speech``, :mod:`speech_augment`). Each client draws
from a stream of its own, so that its views do not depend on the clients that train beside it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.store import DataSet
from fedscale_ext.training.augmentation.rand_augment import CHANGES, OPERATIONS, changed
from fedscale_ext.training.augmentation.speech import SpeechAugmentation

PAD = 4  # black pixels around a picture before it is cropped


@dataclass(frozen=True)
class Augmentation:
    """Random flips, crops and RandAugment of pictures.

    Attributes:
        crop: Whether pictures are shifted by up to ``PAD`` pixels each way, in addition to flipping.
        black: A black pixel, normalised, [C, 1, 1].
        white: A white pixel, [C, 1, 1]; None turns RandAugment off.

    """

    crop: bool
    black: Tensor
    white: Tensor | None = None

    @classmethod
    def of(cls, kind: str, data: DataSet, device: torch.device) -> "Augmentation | SpeechAugmentation | None":
        """Return the augmentation of a data set.

        Args:
            kind: Value of the key ``augment``.
            data: The data set.
            device: The training device.

        Returns:
            The augmentation; None for ``none``.

        Raises:
            UserError: If the data set has no pictures, or for ``speech`` no speech.

        """
        if kind == "none":
            return None
        if kind == "speech":
            return SpeechAugmentation.of(data, device)
        if data.x.dtype != np.uint8:
            raise UserError(f"augment: {kind} is for pictures, but {data.data_set} holds values: set augment: none")
        black, white = (
            data.normalised(torch.full((1, data.input_shape[0], 1, 1), value, dtype=torch.uint8))[0].to(device)
            for value in (0, 255)
        )
        return cls(kind != "flip", black, white if kind == "rand_flip_crop" else None)

    def draw(self, steps: int, batch: int, rng: np.random.Generator) -> np.ndarray:
        """Draw how each sample is changed.

        Args:
            steps: Number of steps.
            batch: Number of samples of a step.
            rng: The client's random stream.

        Returns:
            int64 [steps, batch, columns]: whether it is flipped, its shifts down and right, and for each operation of
            RandAugment its number and whether its sign is negative.

        """
        views = np.zeros((steps, batch, self.columns), dtype=np.int64)
        views[..., 0] = rng.integers(0, 2, (steps, batch))
        if self.crop:
            views[..., 1:3] = rng.integers(-PAD, PAD + 1, (steps, batch, 2))
        if self.white is not None:
            views[..., 3::2] = rng.integers(0, len(CHANGES), (steps, batch, OPERATIONS))
            views[..., 4::2] = rng.integers(0, 2, (steps, batch, OPERATIONS))
        return views

    @property
    def columns(self) -> int:
        """Number of values that describe the change of a sample."""
        return 3 if self.white is None else 3 + 2 * OPERATIONS

    def apply(self, x: Tensor, views: Tensor) -> Tensor:
        """Flip, crop and RandAugment pictures.

        Args:
            x: Normalised pictures [n, C, H, W].
            views: The changes that :meth:`draw` drew, int64 [n, columns].

        Returns:
            The changed pictures [n, C, H, W].

        """
        seen = self._cropped(x, views[:, :3])
        if self.white is None:
            return seen
        black, span = self.black.to(x.dtype), (self.white - self.black).to(x.dtype) / 255
        return changed(((seen - black) / span).round(), views[:, 3:]) * span + black

    def _cropped(self, x: Tensor, views: Tensor) -> Tensor:
        _, channels, height, width = x.shape
        flip, down, right = views[:, :, None].unbind(1)  # [n, 1]
        rows = torch.arange(height, device=x.device) + down  # [n, H]
        columns = torch.arange(width, device=x.device)
        columns = torch.where(flip == 1, width - 1 - columns, columns) + right  # [n, W]
        pixel_index = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None]  # [n, H, W]
        seen = x.flatten(2).gather(2, pixel_index.flatten(1)[:, None].expand(-1, channels, -1)).view_as(x)
        if not self.crop:
            return seen
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]
        return torch.where(inside[:, None], seen, self.black.to(x.dtype))
