"""MNIST and Fashion-MNIST in the idx files that they are published in, packed by gzip or not."""

import gzip
import math
import zlib
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import check_shape
from fedscale_ext.data.formats.published import Published, open_part
from fedscale_ext.data.formats.source import Sample
from fedscale_ext.util.reading import MEGA

_MOST = 1024 * MEGA  # bytes of a file, and of what is in it
_BYTES = 8  # idx's number for unsigned bytes


class IdxSource(Published):
    """``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte`` and the same of ``t10k``, each as it is or with ``.gz``;
    see ``importers.import_idx``."""

    kind = "idx files"
    parts = tuple(f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
    endings = (".gz", "")
    subfolders = ("raw", "FashionMNIST/raw", "MNIST/raw")
    owners: ClassVar[Mapping[str, str]] = {"FashionMNIST": "fashionmnist", "MNIST": "mnist"}

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`source.Source`; the official split is kept."""
        parts = []
        for part in ("train", "t10k"):
            x, y = _read(self.file(f"{part}-images-idx3-ubyte"), 3), _read(self.file(f"{part}-labels-idx1-ubyte"), 1)
            if len(x) != len(y):
                raise UserError(f"{self.folder()} has {len(x)} pictures and {len(y)} labels in {part}: get it again")
            check_shape((1, *x.shape[1:]))
            parts.append((x, y, part == "t10k"))
        self._outline((y, is_test) for _, y, is_test in parts)
        for x, y, is_test in parts:
            for image, label in zip(x, y.tolist(), strict=True):
                yield Sample(image[None], label, "", is_test)


def _read(path: Path, axes: int) -> np.ndarray:
    """The array of unsigned bytes in an idx file: two zeros, type, number of axes, their lengths (4 bytes each)."""
    with open_part(path, _MOST) as raw:
        file = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        try:
            if file.read(4) != bytes([0, 0, _BYTES, axes]):
                raise ValueError(f"it does not begin as bytes of {axes} axes do")
            lengths = file.read(4 * axes)
            if len(lengths) != 4 * axes:
                raise ValueError("it is cut off")
            shape = tuple(np.frombuffer(lengths, ">u4").tolist())
            size = math.prod(shape)
            if not 0 < size <= _MOST:
                raise ValueError(f"its header claims the shape {list(shape)}")
            data = file.read(size)
            if len(data) != size or file.read(1):
                raise ValueError(f"its header claims the shape {list(shape)}, which is not what follows")
        except (ValueError, EOFError, OSError, zlib.error) as error:
            raise UserError(f"{path} is no idx file as expected ({error}): get it again") from error
    return np.frombuffer(data, np.uint8).reshape(shape)
