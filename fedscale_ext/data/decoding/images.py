"""From an image file to an array of bytes and back, through Pillow."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.conversions import GREY_MODES, Conversions
from fedscale_ext.data.registry import Shape
from fedscale_ext.util.reading import MEGA, open_plain

T = TypeVar("T")

# Part of the cache key: raise it when the same file would decode to other bytes.
DECODER_VERSION = 1

MAX_SOURCE_PIXELS = 64_000_000  # of what a file may hold; Pillow's own limits are above it
MAX_SOURCE_BYTES = 256 * MEGA

# Only plain raster formats: some of Pillow's others start programs or follow references.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")

_ORIENTATION = 0x0112  # EXIF's tag
_SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange height and width
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def _read(source: Path | bytes, name: str, use: Callable[[Image.Image, bool], T]) -> T:
    """What ``use`` makes of an image, and of whether its file has 16 bits per channel.

    UserError with the file's name for whatever goes wrong.
    """
    try:
        file = io.BytesIO(source) if isinstance(source, bytes) else open_plain(source, MAX_SOURCE_BYTES)
    except FileNotFoundError as error:
        raise UserError(f"the image {name} does not exist") from error
    except OSError as error:
        raise UserError(f"the image {name} cannot be read: {error.strerror}") from error
    with file:
        try:
            image = Image.open(file, formats=_FORMATS)
            if image.width * image.height > MAX_SOURCE_PIXELS:
                raise UserError(
                    f"the image {name} has {image.width} x {image.height} pixels, which is refused as absurd"
                )
            deep = any(";16" in str(tile) for tile in image.tile)  # Pillow keeps the upper 8 bits of colours
            image.load()
            if image.mode.startswith(("I", "F")):
                raise UserError(f"the image {name} has more than 8 bits per channel: convert it to 8 bits")
            return use(image, deep)
        except UserError:
            raise
        except UnidentifiedImageError as error:  # its text names the open file's number
            raise UserError(f"the image {name} cannot be decoded (it is none): replace or remove it") from error
        except Exception as error:  # Pillow's decoders raise whatever a broken file leads them to
            raise UserError(f"the image {name} cannot be decoded ({error}): replace or remove it") from error


def decode(
    source: Path | bytes, shape: Shape, name: str = "", conversions: Conversions | None = None, upright: bool = False
) -> np.ndarray:
    """Pixels of an image file (or of its bytes) as uint8 [C, H, W], resized to ``shape`` where they differ.

    ``conversions`` counts what is changed on the way. ``upright`` turns pictures as their EXIF orientation says, which
    FedScale's loaders do not. Raises UserError naming the file when it is truncated, no image, or absurdly large.
    """
    channels, height, width = shape

    def pixels(file: Image.Image, deep: bool) -> np.ndarray:
        image = file
        turn = _TURNS.get(orientation(file)) if upright or conversions is not None else None
        if conversions is not None:
            tilted = turn is not None
            conversions.see(file, shape, deep=deep, turned=tilted and upright, tilted=tilted and not upright)
        mode = "L" if channels == 1 else "RGB"
        if image.mode != mode:
            image = image.convert(mode)
        if upright and turn is not None:
            image = image.transpose(turn)
        if image.size != (width, height):
            if conversions is not None:
                conversions.resize(image.height, image.width, shape)
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        plane = np.asarray(image, dtype=np.uint8)
        if conversions is not None:
            conversions.see_frames(file)
        return plane[None] if channels == 1 else np.ascontiguousarray(plane.transpose(2, 0, 1))

    return _read(source, name or str(source), pixels)


def orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of an image, 1 (upright) to 8; 1 where none can be read."""
    if "exif" not in image.info and image.format != "TIFF":
        return 1
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # a broken note beside the pixels is no reason to refuse them
        return 1


def natural_shape(source: Path | bytes, name: str = "") -> Shape:
    """Return the shape (C, H, W) of an image file once it is upright; C is 1 for grey images, else 3."""

    def look(image: Image.Image, deep: bool) -> Shape:
        height, width = image.height, image.width
        if orientation(image) in _SIDEWAYS:
            height, width = width, height
        return (1 if image.mode in GREY_MODES else 3), height, width

    return _read(source, name or str(source), look)


def png_bytes(pixels: np.ndarray) -> bytes:
    """Return uint8 pixels [C, H, W] with C 1 or 3 as the bytes of a PNG file."""
    out = io.BytesIO()
    write_png(out, pixels)
    return out.getvalue()


def write_png(path: Path | io.BytesIO, pixels: np.ndarray) -> None:
    """Write uint8 pixels [C, H, W] with C 1 or 3 as a PNG file."""
    plane = pixels[0] if pixels.shape[0] == 1 else pixels.transpose(1, 2, 0)
    # level 1: at this size, stronger compression costs time and saves nothing on a disk of 4 kB blocks
    Image.fromarray(np.ascontiguousarray(plane)).save(path, format="PNG", compress_level=1)
