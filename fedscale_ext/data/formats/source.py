"""Base of each format: a stream of samples."""

from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.layout.labels import row_of
from fedscale_ext.util.reading import MEGA

MAX_JSON = 4096 * MEGA  # bytes of a JSON file
OTHER_FORMAT = (
    "`fedscale dataset import --format` names another format"  # for files that are not what their endings tell
)


class Sample(NamedTuple):
    """One sample ``x`` (uint8 pixels or float16 values [C, H, W], or int16 speech [n]), its label, whose it is
    ("": not known), whether it is a test sample (None: its source has no split), and what the user calls it."""

    x: np.ndarray
    label: int
    client: str
    test: bool | None
    where: str = ""


class Outline(NamedTuple):
    """Of all samples of a source: ``labels`` int64 [n], ``split`` int8 [n] 1 test, 0 training, -1 not known."""

    labels: np.ndarray
    split: np.ndarray


class Source:
    """A format: where the data is, what it is called, its samples in order.

    Attributes:
        path: The file or folder.
        kind: What messages call the format.
        outline: Labels and split, set before the first sample is read, but not by LEAF, where only reading tells.
        num_classes: Number of classes that it declares; None where its labels are all that tells.
        sides: (height, width) or (channels, height, width) of pictures; None: those of the data set, else of the first.
        label_names: Names of labels 0, 1, …; () where they have none. Complete after the last sample.
        left_out: Samples, or speakers of text, that no client gets.
        absent: Clips that a client map names and the source lacks.

    """

    path: Path
    kind: str
    outline: Outline | None = None
    num_classes: int | None = None
    sides: Sequence[int] | None = None
    label_names: Sequence[str] = ()
    left_out: int = 0
    absent: int = 0
    _notes: Sequence[str] = ()

    @property
    def title(self) -> str:
        """Name of the source, for dataset.json."""
        return self.path.name

    def exists(self) -> bool:
        """Whether there is something at ``path``."""
        return self.path.exists()

    def inputs(self) -> list[Path]:
        """Files and folders of the user that are read: an import must not replace them."""
        return [self.path]

    def files(self) -> list[Path] | None:
        """Files that the samples come from; None: all at ``path``."""
        return None

    def notes(self) -> list[str]:
        """Describe changed, omitted and unusual samples, a sentence each; complete after the last sample."""
        return [*self._notes]

    def samples(self) -> Generator[Sample, None, None]:
        """Yield all samples; UserError where the source is broken."""
        raise NotImplementedError

    def total(self) -> int:
        """Number of samples, 0 while it is unknown."""
        return 0 if self.outline is None else len(self.outline.labels)

    def _outline(self, parts: Iterable[tuple[Sequence[int] | np.ndarray, np.ndarray | bool | None]]) -> None:
        """Set the outline from parts: labels, and which of them are tests (one answer for all, None: not known)."""
        labels, splits = [], []
        for part, test in parts:
            labels.append(np.asarray(part, dtype=np.int64))
            splits.append(np.broadcast_to(np.asarray(-1 if test is None else test, dtype=np.int8), len(part)))
        self.outline = Outline(np.concatenate(labels), np.concatenate(splits))


def as_bytes(x: np.ndarray, where: str) -> np.ndarray:
    """Convert pixels to uint8: unchanged, or from floats in 0..1."""
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind == "f":
        if x.size and not (x.min() >= 0 and x.max() <= 1):  # false for what is not a number, too
            row = row_of(~((x >= 0) & (x <= 1)))
            raise UserError(
                f"{where} must be bytes or floats in 0..1, but {row} has others: scale them, and mend what is not "
                "finite"
            )
        return np.rint(x.astype(np.float32) * 255.0).astype(np.uint8)
    raise UserError(f"{where} must be bytes (uint8) or floats in 0..1, not {x.dtype}")
