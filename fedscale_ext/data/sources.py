"""Formats that real data comes in, each read as a stream of samples."""

import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedscale_ext.data.audio import resampled
from fedscale_ext.data.images import check_shape, decode, natural_shape
from fedscale_ext.data.registry import Shape, known
from fedscale_ext.data.samples import as_values
from fedscale_ext.errors import UserError
from fedscale_ext.npz import Npz
from fedscale_ext.reading import MEGA, open_plain, read_json

MAX_ARRAY = 16384 * MEGA  # bytes of an array
MAX_JSON = 4096 * MEGA  # bytes of a JSON file
CLASS_NAMES = "classes"  # array of an npz file with the names of its labels
_IMAGE_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"}


class Sample(NamedTuple):
    """One sample ``x`` (uint8 pixels or float16 values [C, H, W], or int16 speech [n]), its label, whose it is
    ("": not known), and whether it is a test sample (None: its source has no split)."""

    x: np.ndarray
    label: int
    client: str
    test: bool | None


class Outline(NamedTuple):
    """Of all samples of a source: ``labels`` int64 [n], ``split`` int8 [n] 1 test, 0 training, -1 not known."""

    labels: np.ndarray
    split: np.ndarray


class Source:
    """A format: where the data is, what it is called, its samples in order.

    ``outline`` is set before the first sample is read, but not by LEAF, where only reading tells."""

    path: Path
    kind: str
    outline: Outline | None = None

    def samples(self) -> Generator[Sample, None, None]:
        """All samples; UserError where the source is broken."""
        raise NotImplementedError

    def total(self) -> int:
        """Number of samples, 0 as long as it is not known."""
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
    """Pixels as uint8: unchanged, or from floats in 0..1."""
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind == "f":
        if not (np.isfinite(x).all() and x.size and x.min() >= 0 and x.max() <= 1):
            raise UserError(
                f"{where} must be bytes or floats in 0..1, but it has others: scale them, and mend what is not finite"
            )
        return np.rint(x.astype(np.float32) * 255.0).astype(np.uint8)
    raise UserError(f"{where} must be bytes (uint8) or floats in 0..1, not {x.dtype}")


def _integers(values: Any, where: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise UserError(f"{where} are no list of labels") from error
    if array.ndim == 1 and array.dtype.kind == "f" and np.array_equal(array, np.rint(array)):
        array = array.astype(np.int64)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise UserError(f"{where} must be a list of integers, not {array.dtype} of {array.ndim} dimensions")
    return array.astype(np.int64)


@dataclass
class NpzSource(Source):
    """Arrays of an npz file, see ``importers.import_npz``."""

    path: Path
    x: str
    y: str
    client: str
    split: str | None
    names: str
    data_set: str
    kind: str = "npz"

    def __post_init__(self) -> None:
        self._names: list[str] = []

    def _parts(self, archive: Npz) -> list[tuple[str, str, str | None, bool | None]]:
        """Keys (x, y, client, whether test) of each part of the file."""
        has = set(archive.names)
        if self.x in has and self.y in has:
            return [(self.x, self.y, self.client if self.client in has else None, None)]
        parts: list[tuple[str, str, str | None, bool | None]] = []
        for part in ("train", "test"):
            keys = f"{self.x}_{part}", f"{self.y}_{part}"
            if has.issuperset(keys):
                owner = next((key for key in (f"{self.client}_{part}", f"c_{part}") if key in has), None)
                parts.append((*keys, owner, part == "test"))
        if not parts or parts[0][3]:
            raise UserError(
                f"{self.path} has no arrays {self.x!r} and {self.y!r} (nor {self.x}_train and {self.y}_train): "
                f"it has {', '.join(sorted(has))}; name them with --x and --y"
            )
        return parts

    def _read(self, archive: Npz, key: str) -> np.ndarray:
        try:
            return archive[key]
        except ValueError as error:
            raise UserError(f"array {key!r} of {self.path} cannot be read: {error}") from error

    def _pixels(self, x: np.ndarray, key: str) -> np.ndarray:
        """Any accepted order of axes as [N, C, H, W]: uint8, or values where the data set has them; int16 speech
        [N, n] as it is."""
        entry = known(self.data_set)
        if entry and entry.by_name and x.ndim == 2 and x.dtype == np.int16:
            return resampled(x, entry.rate)
        if x.ndim == 3:
            x = x[:, None]
        elif x.ndim == 4 and x.shape[1] not in (1, 3) and x.shape[-1] in (1, 3):
            x = x.transpose(0, 3, 1, 2)
        if x.ndim != 4:
            raise UserError(f"array {key!r} of {self.path} has shape {x.shape}: it must be images [N, H, W(, C)]")
        check_shape(x.shape[1:])
        to_stored = as_values if entry and entry.values else as_bytes
        return to_stored(x, f"array {key!r} of {self.path}")

    def _numbers(self) -> np.ndarray | None:
        """The data set's own label of each name in the file; None where it does not know all of them."""
        entry = known(self.data_set)
        found = [entry.label(name) for name in self._names] if entry else []
        if not found or None in found:
            if entry and entry.by_name:
                raise UserError(f"array {self.names!r} of {self.path} names classes that {entry.name} does not have")
            return None
        self._names = []  # the data set has its own
        return np.array(found)

    def _renumbered(self, y: np.ndarray, number: np.ndarray) -> np.ndarray:
        if y.size and not (y.min() >= 0 and y.max() < len(number)):
            raise UserError(f"{self.path} has labels beyond the {len(number)} names in {self.names!r}")
        return number[y]

    def _is_test(self, archive: Npz, split: str, samples: int) -> np.ndarray:
        if split not in archive:
            raise UserError(f"{self.path} has no array {split!r}: it has {', '.join(sorted(archive.names))}")
        values = self._read(archive, split)
        names = {"train": False, "test": True, "0": False, "1": True, "False": False, "True": True}
        unknown = {str(value) for value in np.unique(values)} - set(names)
        if unknown or values.shape != (samples,):
            raise UserError(f"array {split!r} of {self.path} must say train or test (0 or 1) of each sample")
        return np.array([names[str(value)] for value in values])

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`Source`."""
        try:
            archive = Npz(open_plain(self.path), MAX_ARRAY)
        except (ValueError, OSError) as error:
            raise UserError(f"{self.path} is not an npz file: {error}") from error
        with archive:
            parts = self._parts(archive)
            ys = [_integers(self._read(archive, part[1]), f"array {part[1]!r} of {self.path}") for part in parts]
            if self.names in archive:
                names = self._read(archive, self.names)
                self._names = [str(name) for name in names] if names.dtype.kind == "U" and names.ndim == 1 else []
                number = self._numbers()
                ys = ys if number is None else [self._renumbered(y, number) for y in ys]
            elif self.names != CLASS_NAMES:
                raise UserError(f"{self.path} has no array {self.names!r}: it has {', '.join(sorted(archive.names))}")
            tests = [part[3] if self.split is None else self._is_test(archive, self.split, len(y))
                     for part, y in zip(parts, ys, strict=True)]  # fmt: skip
            self._outline(zip(ys, tests, strict=True))
            for (x_key, y_key, client_key, _), y, test in zip(parts, ys, tests, strict=True):
                x = self._pixels(self._read(archive, x_key), x_key)
                owner = self._read(archive, client_key) if client_key else np.full(len(y), "")
                if not len(x) == len(y) == len(owner) or owner.ndim != 1:
                    raise UserError(f"{x_key!r}, {y_key!r} and {client_key!r} of {self.path} differ in length")
                # by client (numbers by size), so that clients are numbered in that order
                for row in np.argsort(owner, kind="stable").tolist():
                    is_test = bool(test[row]) if isinstance(test, np.ndarray) else test
                    yield Sample(x[row], int(y[row]), str(owner[row]), is_test)

    def label_names(self) -> Sequence[str]:
        """See :class:`Source`."""
        return self._names


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


@dataclass
class LeafSource(Source):
    """LEAF's JSON, see ``importers.import_leaf``."""

    path: Path
    kind: str = "LEAF JSON"

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`Source`."""
        for file, test in leaf_files(self.path):
            try:
                content = read_json(file, MAX_JSON, deepest=None)
                users, user_data = list(content["users"]), content["user_data"]
                records = [(str(user), user_data[user]["x"], user_data[user]["y"]) for user in users]
            except (ValueError, KeyError, TypeError, OSError) as error:
                raise UserError(f"{file} is not LEAF JSON (users, user_data with x and y): {error!r}") from error
            for user, x, y in records:
                labels = _integers(y, f"labels of user {user!r} in {file}")
                try:
                    flat = np.array(x, dtype=np.float32).reshape(len(labels), -1)
                except (ValueError, TypeError, OverflowError) as error:
                    raise UserError(f"user {user!r} in {file}: x is not one list of numbers per label") from error
                side = round(flat.shape[1] ** 0.5) if len(labels) else 0
                if side * side != flat.shape[1]:
                    raise UserError(f"user {user!r} in {file}: {flat.shape[1]} numbers are no square image")
                if not len(labels):
                    continue
                check_shape((1, side, side))
                pixels = as_bytes(flat, f"x of user {user!r} in {file}").reshape(-1, 1, side, side)
                for image, label in zip(pixels, labels.tolist(), strict=True):
                    yield Sample(image, label, user, test)


@dataclass
class ParquetSource(Source):
    """``flwrlabs/femnist`` as parquet, see ``importers.import_parquet``."""

    path: Path
    data_set: str
    kind: str = "parquet"

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`Source`."""
        try:
            from pyarrow import ArrowException, parquet, types
        except ImportError as error:
            raise UserError("parquet files are read with pyarrow: install it with `pip install pyarrow`") from error
        files = [self.path] if self.path.is_file() else sorted(self.path.rglob("*.parquet"))
        if not files:
            raise UserError(f"{self.path} holds no .parquet files")
        entry = known(self.data_set)
        try:
            opened = [parquet.ParquetFile(file) for file in files]
            for path, file in zip(files, opened, strict=True):
                lacks = {"image", "writer_id", "character"} - set(file.schema_arrow.names)
                if lacks:
                    raise UserError(f"{path} lacks the column {', '.join(sorted(lacks))} of flwrlabs/femnist")
            columns = [file.read(columns=["character"]).column("character") for file in opened]
            if all(types.is_integer(column.type) and not column.null_count for column in columns):
                self._outline((column.to_numpy(), None) for column in columns)
            for path, file in zip(files, opened, strict=True):
                row = 0
                for batch in file.iter_batches(batch_size=1024, columns=["image", "writer_id", "character"]):
                    for record in batch.to_pylist():
                        image, where = record["image"], f"row {row} of {path}"
                        data = image.get("bytes") if isinstance(image, dict) else None
                        label = record["character"]
                        if not isinstance(data, bytes) or not isinstance(label, int) or not record["writer_id"]:
                            raise UserError(f"{where} lacks the image's bytes, a writer_id or an integer character")
                        shape = entry.shape if entry else natural_shape(data, where)
                        yield Sample(decode(data, shape, where), label, str(record["writer_id"]), None)
                        row += 1
        except (ArrowException, OSError, ValueError) as error:  # a ValueError: text that is not UTF-8
            raise UserError(f"{self.path} cannot be read as parquet: {error}") from error


@dataclass
class FolderSource(Source):
    """A tree of image files, see ``importers.import_folder``."""

    path: Path
    data_set: str
    shape: Shape | None
    by_client: bool
    kind: str = "folder"

    def __post_init__(self) -> None:
        self._labels: list[str] = []

    def _files(self) -> list[tuple[str, str, Path]]:
        """(client, label's name, file) of each image, sorted."""
        pattern = "*/*/*" if self.by_client else "*/*"
        files = sorted(
            (path for path in self.path.glob(pattern) if path.suffix.lower() in _IMAGE_ENDINGS and path.is_file()),
            key=lambda path: [_natural(part) for part in path.relative_to(self.path).parts],
        )
        if not files:
            layout = "client/label/*.png" if self.by_client else "label/*.png"
            other = "with a partition, label/*.png" if self.by_client else "without a partition, client/label/*.png"
            raise UserError(f"{self.path} holds no images as {layout} ({other} is read)")
        return [(path.parent.parent.name if self.by_client else "", path.parent.name, path) for path in files]

    def _numbers(self, names: set[str]) -> dict[str, int]:
        """Label of each folder name; sets ``label_names`` where names are not numbers."""
        if all(name.isascii() and name.isdigit() for name in names):
            return {name: int(name) for name in names}
        entry = known(self.data_set)
        self._labels = list(entry.label_names) if entry and names <= set(entry.label_names) else sorted(names)
        return {name: number for number, name in enumerate(self._labels)}

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`Source`."""
        files = self._files()
        numbers = self._numbers({label for _, label, _ in files})
        self._outline([([numbers[label] for _, label, _ in files], None)])
        entry = known(self.data_set)
        shape = self.shape or (entry.shape if entry else natural_shape(files[0][2]))
        check_shape(shape)
        for client, label, path in files:
            yield Sample(decode(path, shape), numbers[label], client, None)

    def label_names(self) -> Sequence[str]:
        """See :class:`Source`."""
        return self._labels


def _natural(text: str) -> list[tuple[int, int | str]]:
    """Sort key that puts "2" before "10"."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts]
