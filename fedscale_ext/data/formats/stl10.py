"""STL-10's labelled pictures in their binary version."""

from collections.abc import Generator
from pathlib import Path

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.formats.published import Published, open_part
from fedscale_ext.data.formats.source import Sample
from fedscale_ext.util.reading import MEGA

_SIDE = 96
_SIZE = 3 * _SIDE * _SIDE  # bytes of a picture
_MOST = 4096 * MEGA  # bytes of a file


class Stl10Source(Published):
    """``train_X.bin``, ``train_y.bin``, ``test_X.bin`` and ``test_y.bin``: pictures by channel and column, labels from
    1; see ``importers.import_stl10``. The unlabelled pictures and the folds are left aside."""

    kind = "STL-10 binary"
    parts = ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin")
    subfolders = ("stl10_binary",)

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`source.Source`; the official split is kept."""
        labels = {part: _labels(self.file(f"{part}_y.bin")) for part in ("train", "test")}
        self._outline((part_labels.astype(np.int64) - 1, part == "test") for part, part_labels in labels.items())
        for part, part_labels in labels.items():
            path = self.file(f"{part}_X.bin")
            with open_part(path, _MOST) as file:
                size = file.seek(0, 2)
                if size != len(part_labels) * _SIZE:
                    raise UserError(
                        f"{path} has {size:,} bytes, not {len(part_labels)} pictures of {_SIZE:,}, as many as labels: "
                        "unpack the archive again"
                    )
                file.seek(0)
                for label in part_labels.tolist():
                    columns = np.frombuffer(file.read(_SIZE), np.uint8).reshape(3, _SIDE, _SIDE)
                    yield Sample(np.ascontiguousarray(columns.transpose(0, 2, 1)), label - 1, "", part == "test")


def _labels(path: Path) -> np.ndarray:
    """Labels 1..10 of a file, a byte each."""
    with open_part(path, MEGA) as file:
        labels = np.frombuffer(file.read(), np.uint8)
    if not labels.size or labels.min() < 1 or labels.max() > 10:
        raise UserError(f"{path} holds no labels of STL-10, which are bytes from 1 to 10")
    return labels
