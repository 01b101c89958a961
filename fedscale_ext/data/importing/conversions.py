"""What decoding changes in pictures, counted so that it can be reported in a few sentences."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from fedscale_ext.core.shapes import shape_text
from fedscale_ext.data.registry import Shape
from fedscale_ext.data.wording import counted, listed

GREY_MODES = ("1", "L", "LA")
_ALPHA_MODES = ("LA", "RGBA")
_SAME_ASPECT = 0.01  # relative difference of height to width that nobody sees


def changes_aspect(height: int, width: int, shape: Sequence[int]) -> bool:
    """Whether resizing a picture of ``height`` x ``width`` to ``shape`` (C, H, W) stretches it by more than 1 %."""
    return abs(height * shape[2] / (width * shape[1]) - 1) > _SAME_ASPECT


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _is_grey(image: Image.Image) -> bool:
    """Whether an image is grey by its mode or by all colours of its palette."""
    if image.mode != "P":
        return image.mode in GREY_MODES
    palette = image.getpalette("RGB") or []
    return palette[0::3] == palette[1::3] == palette[2::3]


def _has_colour(image: Image.Image) -> bool:
    """Whether some pixel differs between the channels of an image that is not grey by its mode."""
    red, *others = (channel.tobytes() for channel in image.convert("RGB").split())
    return any(other != red for other in others)


def has_equal_channels(x: np.ndarray) -> bool:
    """Whether pixels uint8 [C, H, W] are a grey picture in several channels."""
    return len(x) > 1 and bool((x[1:] == x[0]).all())


def _is_transparent(image: Image.Image) -> bool:
    """Whether an image has pixels that are not opaque, or names a colour that is transparent."""
    if "transparency" in image.info or image.mode == "PA":
        return True
    return image.mode in _ALPHA_MODES and image.getchannel("A").getextrema() != (255, 255)


@dataclass
class Conversions:
    """Pictures that were seen, and of how many decoding changed what: ``sizes`` counts (height, width) of those that
    were resized."""

    pictures: int = 0
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    stretched: int = 0
    coloured: int = 0
    greyed: int = 0
    cmyk: int = 0
    transparent: int = 0
    deep: int = 0
    animated: int = 0
    turned: int = 0
    tilted: int = 0

    def see(self, image: Image.Image, shape: Shape, *, deep: bool, turned: bool, tilted: bool) -> None:
        """Count a picture before it is converted; ``deep``: its file has 16 bits per channel, ``turned`` / ``tilted``:
        its EXIF orientation is applied / is not."""
        grey = _is_grey(image)
        self.pictures += 1
        self.coloured += grey and shape[0] == 3
        self.greyed += not grey and shape[0] == 1 and _has_colour(image)
        self.cmyk += image.mode == "CMYK"
        self.transparent += _is_transparent(image)
        self.deep += deep
        self.turned += turned
        self.tilted += tilted

    def see_frames(self, image: Image.Image) -> None:
        """Count a picture with several frames; to be called last, since it may look at the second one."""
        with contextlib.suppress(Exception):  # a broken second frame is no reason to refuse the first one
            self.animated += bool(getattr(image, "is_animated", False))

    def resize(self, height: int, width: int, shape: Shape, pictures: int = 1) -> None:
        """Count pictures of ``height`` x ``width`` that are resized to ``shape``."""
        self.sizes[height, width] += pictures
        self.stretched += pictures * changes_aspect(height, width, shape)

    def sentences(self, shape: Shape, why: str) -> list[str]:
        """A sentence for each kind of change; ``why`` pictures have ``shape``, as ", the first one's"."""
        all_of = counted(self.pictures, "picture")
        notes = []
        if resized := self.sizes.total():
            sizes = [f"{number} of {shape_text(size)}" for size, number in self.sizes.most_common()]
            told = listed(sizes, 3, "size")
            notes.append(f"{resized:,} of {all_of} {_were(resized)} resized to {shape_text(shape)}{why} ({told})")
        counts = [
            (self.stretched, "changed the ratio of height to width by resizing"),
            (self.coloured, f"{_were(self.coloured)} grey and got three equal channels"),
            (self.greyed, f"{_were(self.greyed)} in colour and became grey"),
            (self.cmyk, "had CMYK colours, which were converted without a colour profile"),
            (self.transparent, "had transparency, which was dropped"),
            (self.deep, "had 16 bits per channel, of which the upper 8 were kept"),
            (self.animated, "had several frames, of which the first was taken"),
            (self.turned, f"{_were(self.turned)} turned upright by the EXIF orientation"),
            (
                self.tilted,
                "had an EXIF orientation, which was not applied, as in FedScale: "
                "an import of the picture files applies it",
            ),
        ]
        return notes + [f"{number:,} of {all_of} {what}" for number, what in counts if number]
