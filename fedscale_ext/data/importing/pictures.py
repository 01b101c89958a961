"""Pictures of one source: all get one shape, and what that changes is counted."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import MAX_SIDE, SIZE_OR_SHAPE, with_channels
from fedscale_ext.data.decoding.images import decode, natural_shape
from fedscale_ext.data.importing.conversions import Conversions
from fedscale_ext.data.registry import KnownDataSet, Shape


class PictureReader:
    """Decodes pictures to one shape: ``sides``, (H, W) or (C, H, W), else that of a known data set or of the first one.

    Pictures are turned upright by their EXIF orientation.
    """

    def __init__(self, entry: KnownDataSet | None, sides: Sequence[int] | None) -> None:
        self._entry, self._sides = entry, sides
        self._conversions = Conversions()
        self._shape: Shape | None = None
        self._why = ""

    def read(self, source: Path | bytes, name: str = "") -> np.ndarray:
        """Decode an image file (or its bytes), uint8 [C, H, W]; UserError names a broken one."""
        if self._shape is None:
            self._shape, self._why = self._decide(source, name or str(source))
        return decode(source, self._shape, name, self._conversions, upright=True)

    def notes(self) -> list[str]:
        """Describe the changes that decoding made, a sentence each."""
        return [] if self._shape is None else self._conversions.sentences(self._shape, self._why)

    def _decide(self, source: Path | bytes, name: str) -> tuple[Shape, str]:
        """The shape of all pictures, and whose it is, in words."""
        if self._sides is not None:
            channels = self._entry.shape[0] if self._entry else 0
            return with_channels(self._sides, channels or natural_shape(source, name)[0]), ", as --shape asks"
        if self._entry:
            return self._entry.shape, f", {self._entry.name}'s shape"
        shape = natural_shape(source, name)
        if max(shape[1:]) > MAX_SIDE:
            raise UserError(
                f"the image {name} has {shape[1]} x {shape[2]} pixels (height x width), above {MAX_SIDE}: give the "
                f"pictures a shape by --shape ({SIZE_OR_SHAPE})"
            )
        return shape, ", the first one's shape; --shape gives another"
