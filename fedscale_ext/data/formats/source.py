"""Formats that real data comes in, each read as a stream of samples."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import check_shape
from fedscale_ext.data.importing.pictures import PictureReader
from fedscale_ext.data.labels import row_of, whole_numbers
from fedscale_ext.data.registry import known
from fedscale_ext.data.wording import counted, quoted
from fedscale_ext.util.reading import MEGA, read_json

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

    ``outline`` is set before the first sample is read, but not by LEAF, where only reading tells. ``num_classes``: how
    many classes it declares, None where its labels are all that tells. ``sides``, (height, width) or (channels, height,
    width), are what pictures get; None: those of the data set, else of the first picture."""

    path: Path
    kind: str
    outline: Outline | None = None
    num_classes: int | None = None
    sides: Sequence[int] | None = None

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
        return []

    def samples(self) -> Generator[Sample, None, None]:
        """Yield all samples; UserError where the source is broken."""
        raise NotImplementedError

    def total(self) -> int:
        """Number of samples, 0 while it is unknown."""
        return 0 if self.outline is None else len(self.outline.labels)

    def label_names(self) -> Sequence[str]:
        """Names of labels 0.., () where the source has none."""
        return ()

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


def leaf_files(path: Path) -> list[tuple[Path, bool | None]]:
    """LEAF's files at ``path``, and whether they hold test samples; None: not known."""
    if path.is_file():
        return [(path, None)]
    parts = [(path / part, part == "test") for part in ("train", "test") if (path / part).is_dir()]
    files: list[tuple[Path, bool | None]] = [
        (file, test) for part, test in parts for file in sorted(part.glob("*.json"))
    ] or [(file, None) for file in sorted(path.glob("*.json"))]
    if not files:
        raise UserError(f"{path} holds no .json files (nor do train and test below it)")
    return files


def has_leaf_files(folder: Path) -> bool:
    """Whether json files lie where :func:`leaf_files` reads them."""
    return any(next(folder.glob(pattern), None) for pattern in ("train/*.json", "test/*.json", "*.json"))


@dataclass
class LeafSource(Source):
    """LEAF's JSON, see ``importers.import_leaf``."""

    path: Path
    kind: str = "LEAF JSON"

    def __post_init__(self) -> None:
        self._empty: list[str] = []

    def notes(self) -> list[str]:
        """See :class:`Source`."""
        if not self._empty:
            return []
        have = "has" if len(self._empty) == 1 else "have"
        return [f"{counted(len(self._empty), 'user')} {have} no samples in a file: {quoted(self._empty)}"]

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`Source`."""
        for file, test in leaf_files(self.path):
            try:
                content = read_json(file, MAX_JSON, deepest=None)
                users, user_data = list(content["users"]), content["user_data"]
                records = [(str(user), user_data[user]["x"], user_data[user]["y"]) for user in users]
            except (ValueError, KeyError, TypeError, OSError) as error:
                raise UserError(
                    f"{file} is not LEAF JSON (users, user_data with x and y): {error!r}; {OTHER_FORMAT}"
                ) from error
            for user, x, y in records:
                labels = whole_numbers(y, f"labels of user {user!r} in {file}")
                if not isinstance(x, list) or len(x) != len(labels):
                    numbers = len(x) if isinstance(x, list) else "no list of"
                    raise UserError(
                        f"user {user!r} in {file} has {numbers} samples x and {len(labels)} labels y: correct the file"
                    )
                if not len(labels):
                    self._empty.append(user)
                    continue
                try:
                    flat = np.array(x, dtype=np.float32).reshape(len(labels), -1)
                except (ValueError, TypeError, OverflowError) as error:
                    raise UserError(f"user {user!r} in {file}: x is not one list of numbers per label") from error
                side = round(flat.shape[1] ** 0.5)
                if side * side != flat.shape[1]:
                    raise UserError(f"user {user!r} in {file}: {flat.shape[1]} numbers are no square image")
                check_shape((1, side, side))
                pixels = as_bytes(flat, f"x of user {user!r} in {file}").reshape(-1, 1, side, side)
                for row, (image, label) in enumerate(zip(pixels, labels.tolist(), strict=True)):
                    yield Sample(image, label, user, test, f"sample {row} of user {user!r} in {file} (counted from 0)")


@dataclass
class ParquetSource(Source):
    """``flwrlabs/femnist`` as parquet, see ``importers.import_parquet``."""

    path: Path
    data_set: str
    sides: Sequence[int] | None = None
    kind: str = "parquet"

    def __post_init__(self) -> None:
        self._pictures = PictureReader(known(self.data_set), self.sides)

    def notes(self) -> list[str]:
        """See :class:`Source`."""
        return self._pictures.notes()

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`Source`."""
        try:
            from pyarrow import ArrowException, parquet, types
        except ImportError as error:
            raise UserError("parquet files are read with pyarrow: install it with `pip install pyarrow`") from error
        files = [self.path] if self.path.is_file() else sorted(self.path.rglob("*.parquet"))
        if not files:
            raise UserError(f"{self.path} holds no .parquet files")
        try:
            opened = [parquet.ParquetFile(file) for file in files]
            for path, file in zip(files, opened, strict=True):
                lacks = {"image", "writer_id", "character"} - set(file.schema_arrow.names)
                if lacks:
                    names = ", ".join(sorted(lacks))
                    raise UserError(f"{path} lacks the column {names} of flwrlabs/femnist; {OTHER_FORMAT}")
            columns = [file.read(columns=["character"]).column("character") for file in opened]
            if all(types.is_integer(column.type) and not column.null_count for column in columns):
                self._outline((column.to_numpy(), None) for column in columns)
            for path, file in zip(files, opened, strict=True):
                row = 0
                for batch in file.iter_batches(batch_size=1024, columns=["image", "writer_id", "character"]):
                    for record in batch.to_pylist():
                        image, where = record["image"], f"row {row} of {path} (counted from 0)"
                        data = image.get("bytes") if isinstance(image, dict) else None
                        label = record["character"]
                        if (
                            not isinstance(data, bytes)
                            or not isinstance(label, int)
                            or record["writer_id"] in (None, "")
                        ):
                            raise UserError(f"{where} lacks the image's bytes, a writer_id or an integer character")
                        pixels = self._pictures.read(data, where)
                        yield Sample(pixels, label, str(record["writer_id"]), None, where)
                        row += 1
        except (ArrowException, OSError, ValueError) as error:  # a ValueError: text that is not UTF-8
            raise UserError(f"{self.path} cannot be read as parquet: {error}") from error
