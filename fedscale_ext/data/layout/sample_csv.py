"""FedScale's csv of samples: ``client_id,sample_path,label_name,label_id``, read by position.

Column 0 is the client, column 1 a path, the last column the integer label; the first line is a header.
Rows are kept in arrays: half a million samples must not cost half a million Python objects.
"""

import csv
import hashlib
import io
import os
import stat
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.data.layout.data_folder import ways_out
from fedscale_ext.data.layout.label_names import LabelNames
from fedscale_ext.util.reading import MEGA, open_plain, repeated_column

_HEADER = ("client_id", "sample_path", "label_name", "label_id")
MAX_BYTES = 4096 * MEGA  # of a csv
MAX_ROWS = 20_000_000
MAX_CLASSES = 1_000_000  # a label decides how large the models' last layer is
_LONGEST = 65_536  # characters of a row

Problem = Callable[[str, str], None]
"""Called with the kind of a problem ("missing", "label", "path", "row") and a sentence about it."""


def stop(kind: str, sentence: str) -> None:
    """Raise UserError: the default reaction to a problem."""
    raise UserError(sentence)


class Strings:
    """A growing list of short strings in one block of bytes."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("q")

    def append(self, text: str) -> None:
        """Add a string at the end."""
        self._bytes += text.encode()
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        start = self._ends[index - 1] if index else 0
        return self._bytes[start : self._ends[index]].decode()


@dataclass(frozen=True)
class SampleTable:
    """The rows of one csv: ``clients`` are the names in order of first appearance, ``client`` int32 [n]
    indexes them, ``labels`` int64 [n], ``paths`` the files' paths below ``root``, ``file_keys`` int64 [n] numbers that
    are equal where the file is the same, in this process and for any csv; ``stamp`` is a digest of
    the csv's bytes, of each file's size and time of change, and of labels that the csv has by name only.
    ``label_names`` are the rows' names of labels, none where the csv has no column of that name or labels are read
    by name."""

    csv: Path
    root: Path
    clients: list[str]
    client: np.ndarray
    labels: np.ndarray
    paths: Strings
    file_keys: np.ndarray
    stamp: bytes
    label_names: LabelNames

    def __len__(self) -> int:
        return len(self.labels)

    def file(self, row: int) -> Path:
        """Return the file of a row."""
        return self.root / self.paths[row]


def _check_header(header: Sequence[str], name: str) -> None:
    fields = [field.strip() for field in header]
    if fields and fields[-1].lstrip("-").isdigit():
        raise UserError(f"{name} has no header: its first line must be {','.join(_HEADER)}")
    if len(fields) < 3:
        raise UserError(f"{name} lacks a column: its header is {','.join(fields)!r}, it must be {','.join(_HEADER)}")
    if twice := repeated_column(fields, _HEADER):
        raise UserError(f"{name}: {twice}")
    if set(fields) & set(_HEADER):  # other names are taken by position, as FedScale does
        for index, column in ((0, "client_id"), (1, "sample_path"), (-1, "label_id")):
            if fields[index] != column:
                lacks = "is not in its place" if column in fields else "is missing"
                raise UserError(
                    f"column {column} of {name} {lacks}: the header is {','.join(fields)!r}, "
                    f"it must be {','.join(_HEADER)}"
                )


class _Lines:
    """Lines of a text file for csv, which give up where one row (``row`` characters so far) is too long."""

    def __init__(self, file: io.TextIOWrapper) -> None:
        self._readline = file.readline
        self.row = 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._readline(_LONGEST + 1)
        self.row += len(line)
        if self.row > _LONGEST:
            raise csv.Error(f"a row has more than {_LONGEST:,} characters")
        if not line:
            raise StopIteration
        return line


def _rows(path: Path, data_set: str | None) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of the header and of each row after it, blank lines left out."""
    try:
        with io.TextIOWrapper(open_plain(path, MAX_BYTES), newline="", encoding="utf-8-sig") as file:
            lines = _Lines(file)
            reader = csv.reader(lines)
            header = next(reader, None)
            if header is None:
                raise UserError(f"{path} is empty: {ways_out(data_set)}")
            _check_header(header, str(path))
            yield reader.line_num, header
            lines.row = 0
            for fields in reader:
                lines.row = 0
                if fields:
                    if len(fields) != len(header):
                        yield reader.line_num, []
                    else:
                        yield reader.line_num, fields
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist: {ways_out(data_set)}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a csv file in UTF-8: {error}") from error


def _escapes(path: str) -> bool:
    """Whether a path leaves the folder that it is relative to."""
    if path.startswith("/") or "\0" in path:
        return True
    return ".." in path and ".." in path.replace("\\", "/").split("/")


def _integer(text: str) -> int | None:
    try:
        return None if "_" in text else int(text[:40])  # int() would read 1_0 as 10
    except ValueError:
        return None


class _Folder:
    """The files below a folder; a link must not lead out of ``top``, wherever that is itself."""

    def __init__(self, root: Path, top: Path) -> None:
        self.root = root
        self.base = os.path.join(str(root), "")
        self._top = os.path.join(os.path.realpath(top), "")
        self._inside: dict[str, bool] = {}  # folders that were looked at, which costs more than their files

    def look(self, sample: str) -> tuple[int, int] | str:
        """Size and time of change of a regular file below the folder, or why there is none ("missing", "link")."""
        file, folder = self.base + sample, sample.rpartition("/")[0]
        try:
            status = os.lstat(file)
            linked = stat.S_ISLNK(status.st_mode)
            if linked:
                status = os.stat(file)
        except OSError:
            return "missing"
        if not stat.S_ISREG(status.st_mode):  # a pipe would never end
            return "missing"
        if folder not in self._inside:
            self._inside[folder] = self._is_inside(self.base + folder)
        inside = self._inside[folder] and (not linked or self._is_inside(file))
        return (status.st_size, status.st_mtime_ns) if inside else "link"

    def _is_inside(self, path: str) -> bool:
        return os.path.join(os.path.realpath(path), "").startswith(self._top)


_Row = tuple[str, str, int, tuple[int, int], str | None, int]
"""A row without a fault: its client, path and label, the size and time of change of its file, its label_name (None: the
csv has none, or labels are read by it), and its line in the csv. A tuple, not a class: reading must stay fast."""


class _Fault(NamedTuple):
    """What is wrong with a row: the two arguments of a ``Problem``."""

    kind: str
    sentence: str


class _RowChecks:
    """What a row of the csv at ``path`` must be; see :func:`read_sample_csv` for the rest."""

    def __init__(
        self,
        path: Path,
        folder: _Folder,
        columns: Sequence[str],
        classes: int | None,
        label_of: Callable[[str], int | None] | None,
    ) -> None:
        self._path = path
        self._folder = folder
        self._labels = MAX_CLASSES if classes is None else classes
        self._label_of = label_of
        self._name_column = columns.index("label_name") if label_of is None and "label_name" in columns else None

    def checked_row(self, fields: list[str], line: int) -> _Row | _Fault:
        """Return the row of ``fields``, which are none where it has another number of columns than the header."""
        path, label_of = self._path, self._label_of
        if not fields:
            return _Fault("row", f"line {line} of {path} has another number of columns than the header")
        client, sample, text = fields[0], fields[1], fields[-1] if label_of is None else fields[-2]
        if not client or not sample:
            return _Fault("row", f"line {line} of {path} has no {'sample_path' if client else 'client_id'}")
        label = _integer(text) if label_of is None else label_of(text)
        if label is None:
            must = "an integer" if label_of is None else "a class of this data set"
            return _Fault("label", f"line {line} of {path}: the label {text[:40]!r} is not {must}")
        if not 0 <= label < self._labels:
            limits = f"0..{self._labels - 1}"
            return _Fault("label", f"line {line} of {path}: the label {label} is out of range ({limits})")
        if _escapes(sample):
            return _Fault("path", f"line {line} of {path}: the path {sample[:80]!r} leads out of {self._folder.root}")
        file = self._folder.look(sample)
        if file == "missing":
            return _Fault(
                "missing",
                f"line {line} of {path} names the file {self._folder.base + sample}, which does not exist "
                "(`fedscale dataset verify` counts all of them)",
            )
        if isinstance(file, str):
            link = f"line {line} of {path}: the path {sample[:80]!r} leads out of the data folder by a link"
            return _Fault("path", link)
        label_name = None if self._name_column is None else fields[self._name_column]
        return client, sample, label, file, label_name, line


class _RowColumns:
    """The rows so far, in a column for each of their fields, and the digest of their files."""

    def __init__(self, known_clients: Sequence[str], csv_name: str) -> None:
        self.numbers = {name: index for index, name in enumerate(known_clients)}
        self.client, self.labels, self.file_keys = array("i"), array("q"), array("q")
        self.paths = Strings()
        self.label_names = LabelNames(csv_name)
        self._digest = hashlib.sha256()
        self._files: list[str] = []  # what is not in the digest yet

    def add(self, row: _Row) -> None:
        """Add a row at the end."""
        client, sample, label, (size, changed), label_name, line = row
        self._files.append(f"{size} {changed}\n")
        if len(self._files) == 4096:
            self._digest_files()
        self.client.append(self.numbers.setdefault(client, len(self.numbers)))
        self.labels.append(label)
        self.paths.append(sample)
        self.file_keys.append(hash(sample if "//" not in sample and "./" not in sample else os.path.normpath(sample)))
        if label_name is not None:
            self.label_names.add(label_name, label, line)

    def stamp(self, path: Path, with_labels: bool) -> bytes:
        """Digest the rows' files, ``with_labels`` their labels too, and the bytes of the csv at ``path``."""
        self._digest_files()
        if with_labels:
            self._digest.update(self.labels.tobytes())
        with open_plain(path, MAX_BYTES) as file:
            hashlib.file_digest(file, lambda: self._digest)
        return self._digest.digest()

    def _digest_files(self) -> None:
        self._digest.update("".join(self._files).encode())
        self._files.clear()


def read_sample_csv(
    path: Path,
    root: Path,
    classes: int | None,
    problem: Problem = stop,
    known_clients: Sequence[str] = (),
    top: Path | None = None,
    label_of: Callable[[str], int | None] | None = None,
    data_set: str | None = None,
) -> SampleTable:
    """Read a csv of samples and look at each file that it names (without opening it).

    ``root`` is the folder that paths are below, ``classes`` the number of labels (None: any from 0 on),
    ``known_clients`` names that keep their index before new ones are added, ``top`` the folder (by default
    ``root``) that no file may lie outside of, be it by a link. With ``label_of``, a row's label is that of its
    label_name (the column before the last), whatever stands in the last. Rows with a problem
    are reported to ``problem``, which by default raises UserError, and left out. Advice is on ``data_set``.
    """
    rows = _rows(path, data_set)
    header = [field.strip() for field in next(rows)[1]]
    checked_row = _RowChecks(path, _Folder(root, top or root), header, classes, label_of).checked_row
    columns = _RowColumns(known_clients, one_line(path.name, 100))
    add, labels_so_far = columns.add, columns.labels
    for line, fields in rows:
        if len(labels_so_far) == MAX_ROWS:
            raise UserError(f"{path} has more than {MAX_ROWS:,} rows, which is refused as absurd")
        row = checked_row(fields, line)
        if isinstance(row, _Fault):
            problem(*row)
        else:
            add(row)
    stamp = columns.stamp(path, with_labels=label_of is not None)  # one csv has other labels for another data set
    client, labels = np.array(columns.client, dtype=np.int32), np.array(columns.labels, dtype=np.int64)
    # 64 bits: of files that differ, none will be equal
    file_keys = np.array(columns.file_keys, dtype=np.int64) ^ hash(str(root))
    return SampleTable(
        path, root, list(columns.numbers), client, labels, columns.paths, file_keys, stamp, columns.label_names
    )
