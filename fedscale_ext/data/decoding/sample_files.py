"""One sample's file: pixels in a picture, features in an npy file, speech in a wav file."""

import math
from pathlib import Path

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.audio import (
    BANDS,
    COEFFICIENTS,
    FRAMES,
    MFCC_FRAMES,
    SQUARE,
    log_mel,
    mfcc,
    read_wav,
    square_mfcc,
    write_wav,
)
from fedscale_ext.data.decoding.images import decode, natural_shape, write_png
from fedscale_ext.data.importing.conversions import Conversions
from fedscale_ext.data.layout.labels import row_of
from fedscale_ext.data.registry import Shape
from fedscale_ext.util.npz import read_npy
from fedscale_ext.util.reading import open_plain

VALUES = np.float16
"""Type of features: its 11 significant bits are more than any of these measurements has."""

_FEATURES = {(1, FRAMES, BANDS): log_mel, (1, COEFFICIENTS, MFCC_FRAMES): mfcc, (1, SQUARE, SQUARE): square_mfcc}
_HEADER = 4096  # bytes that may stand before an array


def decode_sample(path: Path, shape: Shape, values: bool, conversions: Conversions | None = None) -> np.ndarray:
    """Decode a file to a model's input [C, H, W]: uint8 pixels, resized to ``shape``, or float16 with ``values``.

    ``conversions`` counts what is changed in pictures.
    Of values, a wav file gives the features of that shape, an npy file its array, which must have it.
    Raises UserError naming the file.
    """
    if not values:
        return decode(path, shape, conversions=conversions)
    if path.suffix == ".wav":
        features = _FEATURES.get(shape)
        if features is None:
            raise UserError(f"the clip {path} has features of shape {(1, FRAMES, BANDS)}, not {shape}")
        return features(read_wav(path))
    if path.suffix == ".npy":
        return _read_values(path, shape)
    raise UserError(f"the file {path} holds no values: it must be a wav or npy file")


def _read_values(path: Path, shape: Shape) -> np.ndarray:
    try:
        with open_plain(path, math.prod(shape) * 8 + _HEADER) as file:
            array = read_npy(file)
    except FileNotFoundError as error:
        raise UserError(f"the array {path} does not exist") from error
    except OSError as error:
        raise UserError(f"the array {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"the array {path} cannot be read ({error}): replace it or remove its row") from error
    if array.shape != shape:
        raise UserError(f"the array {path} has shape {list(array.shape)[:8]}, not {list(shape)}")
    return as_values(array, f"the array {path}")


def as_values(x: np.ndarray, where: str) -> np.ndarray:
    """Convert numbers to finite float16."""
    if x.dtype.kind not in "fiu":
        raise UserError(f"{where} must hold numbers, not {x.dtype}")
    with np.errstate(over="ignore"):
        values = x.astype(VALUES)
    finite = np.isfinite(values)
    if not finite.all():
        row = f", first in {row_of(~finite)}" if values.ndim > 3 else ""  # else they are one sample's
        raise UserError(f"{where} has values that are not finite or beyond {float(np.finfo(VALUES).max):.0f}{row}")
    return values


def ending(x: np.ndarray) -> str:
    """Return the file ending for a sample: uint8 pixels, int16 speech [n], or float16 values."""
    return {"u": ".png", "i": ".wav", "f": ".npy"}[x.dtype.kind]


def read_written(path: Path, values: bool) -> np.ndarray:
    """Read a file of :func:`write_sample` that holds pixels, or with ``values`` an array, as it was written."""
    if values:
        with open_plain(path) as file:
            return read_npy(file)
    return decode(path, natural_shape(path))


def write_sample(path: Path, x: np.ndarray) -> None:
    """Write uint8 pixels [C, H, W], int16 speech [n] or float16 values [C, H, W] to a file of its :func:`ending`."""
    if x.dtype == np.uint8:
        write_png(path, x)
    elif x.dtype == np.int16:
        write_wav(path, x)
    else:
        np.save(path, x, allow_pickle=False)
