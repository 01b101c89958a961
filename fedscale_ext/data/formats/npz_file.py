"""Arrays of an npz file as samples."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.audio import resampled
from fedscale_ext.data.formats.arrays import arranged
from fedscale_ext.data.formats.axes import transposed
from fedscale_ext.data.formats.source import Sample, Source
from fedscale_ext.data.layout.labels import Numbering, as_text, number_names, row_of, whole_numbers
from fedscale_ext.data.registry import known
from fedscale_ext.data.wording import quoted
from fedscale_ext.util.npz import Npz
from fedscale_ext.util.reading import MEGA, open_plain

MAX_ARRAY = 16384 * MEGA  # bytes of an array
CLASS_NAMES = "classes"  # array of an npz file with the names of its labels


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
    sides: Sequence[int] | None = None
    transposed: bool = False
    kind: str = "npz"

    def __post_init__(self) -> None:
        self._notes: list[str] = []

    def _open(self) -> Npz:
        try:
            return Npz(open_plain(self.path), MAX_ARRAY)
        except (ValueError, OSError) as error:
            raise UserError(f"{self.path} is not an npz file: {error}") from error

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

    def _note_unread(self, archive: Npz, parts: list[tuple[str, str, str | None, bool | None]]) -> None:
        read = {key for part in parts for key in part[:3]} | {self.split, self.names}
        if unread := [name for name in sorted(archive.names) if name not in read]:
            are = "array {} is" if len(unread) == 1 else "arrays {} are"
            self._notes.append(f"{are.format(quoted(unread))} not read; --client, --split and --names name such arrays")

    def _read(self, archive: Npz, key: str) -> np.ndarray:
        try:
            return archive[key]
        except ValueError as error:
            raise UserError(f"array {key!r} of {self.path} cannot be read: {error}") from error

    def pixels(self, x: np.ndarray, key: str) -> np.ndarray:
        """Any accepted order of axes as [N, C, H, W]: uint8, or values where the data set has them; int16 speech
        [N, n] as it is."""
        entry = known(self.data_set)
        if entry and entry.by_name and x.ndim == 2 and x.dtype == np.int16:
            return resampled(x, entry.rate)
        where = f"array {key!r} of {self.path}"
        if self.transposed and entry:
            x = transposed(x, where, entry)
        return arranged(x, where, entry, self.sides, self._notes)

    def _labels(self, archive: Npz, keys: Sequence[str]) -> list[np.ndarray]:
        """The labels int64 [n] in each of the arrays; sets the names of classes, and their number where it is known."""
        arrays = [self._read(archive, key) for key in keys]
        where = [f"array {key!r} of {self.path}" for key in keys]
        names = self._names_in(archive)
        entry = known(self.data_set)
        if any(y.dtype.kind in "US" and y.ndim == 1 for y in arrays):
            texts = [as_text(y, location) if y.dtype.kind in "US" else [str(label) for label in y]
                     for y, location in zip(arrays, where, strict=True)]  # fmt: skip
            numbering = self._number_texts(texts, names, keys[0])
            self.label_names = numbering.names
            self._notes += numbering.notes
            return [np.array([numbering.label[text] for text in part], dtype=np.int64) for part in texts]
        ys = [whole_numbers(y, location) for y, location in zip(arrays, where, strict=True)]
        if not names:
            return ys
        for y, location in zip(ys, where, strict=True):
            beyond = (y < 0) | (y >= len(names))
            if beyond.any():
                label = y[int(np.argmax(beyond))]
                raise UserError(
                    f"{location} has labels beyond the {len(names)} names in {self.names!r}, which are those of labels "
                    f"0 to {len(names) - 1}: {row_of(beyond)} is {label}"
                )
        numbers = [entry.label(name) for name in names] if entry else []
        if not numbers or None in numbers:
            if entry and entry.by_name:
                raise UserError(f"array {self.names!r} of {self.path} names classes that {entry.name} does not have")
            if entry and entry.label_names:
                strange = [name for name, number in zip(names, numbers, strict=True) if number is None]
                how = f"are no classes of {entry.name}, so that labels stay as they are"
                self._notes.append(f"{quoted(strange)} in {self.names!r} {how}")
            self.label_names, self.num_classes = names, len(names)
            return ys
        return [np.array(numbers)[y] for y in ys]  # the data set has its own names

    def _names_in(self, archive: Npz) -> list[str]:
        """Names of labels 0.. that the file has, [] where it has none."""
        if self.names not in archive:
            if self.names != CLASS_NAMES:
                raise UserError(f"{self.path} has no array {self.names!r}: it has {', '.join(sorted(archive.names))}")
            return []
        names = self._read(archive, self.names)
        if names.dtype.kind in "US" and names.ndim == 1:
            return as_text(names, f"array {self.names!r} of {self.path}")
        if self.names != CLASS_NAMES:
            raise UserError(f"array {self.names!r} of {self.path} must be names (text) of labels 0, 1, …")
        self._notes.append(f"array {self.names!r} holds no text and was not taken as names of the labels")
        return []

    def _number_texts(self, texts: Sequence[Sequence[str]], names: Sequence[str], key: str) -> Numbering:
        """Numbers of labels that are text: places in ``names`` where the file has them."""
        present = {text for part in texts for text in part}
        entry = known(self.data_set)
        if not names or (entry and entry.label_names):
            return number_names(present, entry, f"labels in {key!r}")
        if unknown := sorted(present - set(names)):
            raise UserError(f"array {key!r} of {self.path} has labels that {self.names!r} lacks: {quoted(unknown)}")
        self.num_classes = len(names)
        return Numbering({name: number for number, name in reversed(list(enumerate(names)))}, names, [])

    def _clients(self, archive: Npz, key: str | None, samples: int) -> np.ndarray:
        """Whose each sample is, [n] integers or text; "" where the file does not tell."""
        if key is None:
            return np.full(samples, "")
        values, where = self._read(archive, key), f"array {key!r} of {self.path}"
        if values.dtype.kind == "f":
            return whole_numbers(values, where)
        if values.dtype.kind == "S":
            values = np.array(as_text(values, where))
        if values.dtype.kind == "U" and (values == "").any():
            raise UserError(f"{where} has no name in {row_of(values == '')}: give every sample a client")
        return values

    def _is_test(self, archive: Npz, split: str, samples: int) -> np.ndarray:
        if split not in archive:
            raise UserError(f"{self.path} has no array {split!r}: it has {', '.join(sorted(archive.names))}")
        array, where = self._read(archive, split), f"array {split!r} of {self.path}"
        if array.shape != (samples,):
            raise UserError(
                f"{where} must have a value for each of the {samples:,} samples; its shape is {array.shape}"
            )
        values = as_text(array, where) if array.dtype.kind in "US" else array.tolist()
        names = {"train": False, "test": True, "0": False, "1": True, "False": False, "True": True, "0.0": False,
                 "1.0": True}  # fmt: skip
        for row, value in enumerate(values):
            if str(value) not in names:
                raise UserError(
                    f"{where} has {value!r:.100} in row {row} (counted from 0); it must say train or test (0 or 1) of "
                    "each sample"
                )
        return np.array([names[str(value)] for value in values])

    def samples_alone(self) -> np.ndarray:
        """Return the samples whatever else the file has, as :meth:`pixels`: array ``x``, or the only one there is."""
        with self._open() as archive:
            key = archive.names[0] if len(archive.names) == 1 else self.x
            if key not in archive:
                raise UserError(f"{self.path} has no array {key!r}: it has {', '.join(sorted(archive.names))}")
            return self.pixels(self._read(archive, key), key)

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`Source`."""
        with self._open() as archive:
            parts = self._parts(archive)
            self._note_unread(archive, parts)
            ys = self._labels(archive, [part[1] for part in parts])
            tests = [part[3] if self.split is None else self._is_test(archive, self.split, len(y))
                     for part, y in zip(parts, ys, strict=True)]  # fmt: skip
            self._outline(zip(ys, tests, strict=True))
            for (x_key, y_key, client_key, _), y, test in zip(parts, ys, tests, strict=True):
                x = self.pixels(self._read(archive, x_key), x_key)
                owner = self._clients(archive, client_key, len(y))
                if not len(x) == len(y) == len(owner) or owner.ndim != 1:
                    sizes = f"{len(x)}, {len(y)} and {len(owner)} rows"
                    raise UserError(f"{x_key!r}, {y_key!r} and {client_key!r} of {self.path} differ in length: {sizes}")
                # by client (numbers by size), so that clients are numbered in that order
                for row in np.argsort(owner, kind="stable").tolist():
                    is_test = bool(test[row]) if isinstance(test, np.ndarray) else test
                    where = f"row {row} of {x_key!r} and {y_key!r} in {self.path} (counted from 0)"
                    yield Sample(x[row], int(y[row]), str(owner[row]), is_test, where)
