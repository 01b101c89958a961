"""Data sets of the Hugging Face library ``datasets``: of the Hub, or saved by ``save_to_disk``.

The library is an extra, and opens the data. Pictures are decoded here, from their bytes, like those of other formats.
"""

import importlib
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.data.formats.arrays import arranged
from fedscale_ext.data.formats.source import Sample, Source
from fedscale_ext.data.importing.pictures import PictureReader
from fedscale_ext.data.initial_weights_file import HUB
from fedscale_ext.data.layout.labels import number_names, row_of, whole_numbers
from fedscale_ext.data.registry import known
from fedscale_ext.data.wording import quoted

_NAME = re.compile(
    r"(?P<name>[\w.-]{1,96}(/[\w.-]{1,96})?)(:(?P<config>[\w.+-]{1,96}))?(@(?P<revision>[\w./-]{1,200}))?"
)
_LEAST_VERSION = 4  # earlier ones can run code of a repository
_TESTS = ("test", "validation", "valid", "val", "dev")  # splits that are taken for tests, the first that there is
_ROWS = 256  # that are read at once


def on_hub(path: Path) -> bool:
    """Whether ``path`` is hf:OWNER/NAME, a data set of the Hub."""
    return str(path).startswith(HUB)


def is_saved(path: Path) -> bool:
    """Whether a folder was written by ``datasets.save_to_disk``."""
    return (path / "dataset_dict.json").is_file() or all(
        (path / name).is_file() for name in ("state.json", "dataset_info.json")
    )


@dataclass
class DatasetsSource(Source):
    """Such a data set, see ``importers.import_datasets``."""

    path: Path
    x: str
    y: str
    client: str
    split: str | None
    data_set: str
    sides: Sequence[int] | None = None
    kind: str = "Hugging Face datasets"

    def __post_init__(self) -> None:
        self.path = self.path if on_hub(self.path) else self.path.expanduser()
        self._notes: list[str] = []
        self._pictures = PictureReader(known(self.data_set), self.sides)
        self._parts: list[tuple[str, Any, bool | None]] | None = None

    @property
    def title(self) -> str:
        """See :class:`Source`."""
        return str(self.path) if on_hub(self.path) else self.path.name

    def exists(self) -> bool:
        """See :class:`Source`; of the Hub's, opening tells."""
        return on_hub(self.path) or self.path.exists()

    def files(self) -> list[Path] | None:
        """See :class:`Source`."""
        if not on_hub(self.path):
            return None
        return [Path(file["filename"]) for _, part, _ in self.parts() for file in part.cache_files]

    def notes(self) -> list[str]:
        """See :class:`source.Source`."""
        return [*super().notes(), *self._pictures.notes()]

    def parts(self) -> list[tuple[str, Any, bool | None]]:
        """Open the data: name, ``datasets.Dataset`` and whether test (None: no split) of each split that is taken."""
        if self._parts is None:
            self._library = _library()
            self._parts = self._taken(_opened(self._library, self.path))
        return self._parts

    def _taken(self, opened: Any) -> list[tuple[str, Any, bool | None]]:
        splits = {str(name): part for name, part in opened.items()} if isinstance(opened, Mapping) else {"": opened}
        names = list(splits)
        if self.split is not None:
            chosen = [name.strip() for name in self.split.split(",")]
            if len(chosen) > 2 or len(set(chosen)) < len(chosen) or not set(chosen) <= set(names):
                has = f"the splits {quoted(names)}" if names != [""] else "no splits"
                raise UserError(
                    f"--split {self.split}: {self.title} has {has}; name one, or one for training and one for tests: "
                    "train,test"
                )
        elif len(names) == 1:
            chosen = names
        elif "train" in names:
            chosen = ["train", *[name for name in _TESTS if name in names][:1]]
        else:
            raise UserError(
                f"{self.title} has the splits {quoted(names)}: name the one for training, and after a comma the one "
                "for tests, by --split"
            )
        if left := [name for name in names if name not in chosen]:
            self._notes.append(f"the splits {quoted(left)} are left out; --split names others")
        tests = (False, True) if len(chosen) > 1 else (None,)
        return [(name, splits[name], test) for name, test in zip(chosen, tests, strict=True)]

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`Source`; by client, so that clients are numbered in that order."""
        parts = self.parts()
        try:
            x, y, client = self._columns(parts[0][1])
            labels = self._labels([part for _, part, _ in parts], y)
            self._outline((of, test) for of, (_, _, test) in zip(labels, parts, strict=True))
            for of, (name, part, test) in zip(labels, parts, strict=True):
                owner = self._clients(part, client)
                yield from self._samples(
                    part, x, of, owner, test, f"split {name} of {self.title}" if name else self.title
                )
        except UserError:
            raise
        except Exception as error:  # of Arrow's and of the library's, by no common class
            raise UserError(
                f"{self.title} cannot be read: {type(error).__name__}: {one_line(str(error), 200)}"
            ) from error

    def _samples(
        self, part: Any, x: list[str], labels: np.ndarray, owner: np.ndarray, test: bool | None, where: str
    ) -> Generator[Sample, None, None]:
        order = np.argsort(owner, kind="stable")
        for begin in range(0, len(order), _ROWS):
            rows = order[begin : begin + _ROWS].tolist()
            for row, sample in zip(rows, self._inputs(part, x, rows, where), strict=True):
                row_name = f"row {row} of {where} (counted from 0)"
                yield Sample(sample, int(labels[row]), str(owner[row]), test, row_name)

    def _columns(self, part: Any) -> tuple[list[str], str, str | None]:
        """Columns of samples, of labels and of clients (None: it has none)."""
        has, features = list(part.column_names), part.features
        pictures = [name for name in has if isinstance(features[name], self._library.Image)]
        classes = [name for name in has if getattr(features[name], "names", None)]
        x = [self.x] if self.x in has else [name.strip() for name in self.x.split(",")]
        if x == ["x"] and x[0] not in has and len(pictures) == 1:
            x = pictures
        y = self.y
        if y == "y" and y not in has:
            y = classes[0] if len(classes) == 1 else "label"
        client = None if self.client == "client" and self.client not in has else self.client
        for option, names in (("--x", x), ("--y", [y]), ("--client", [client] if client else [])):
            if not set(names) <= set(has):
                lacks = ", ".join(name for name in names if name not in has)
                raise UserError(f"{self.title} has no column {lacks}: it has {', '.join(has)}; name it with {option}")
        if unread := [name for name in has if name not in {*x, y, client}]:
            are = "column {} is" if len(unread) == 1 else "columns {} are"
            self._notes.append(f"{are.format(quoted(unread))} not read; --x, --y and --client name columns")
        return x, y, client

    def _inputs(self, part: Any, columns: list[str], rows: list[int], where: str) -> list[np.ndarray] | np.ndarray:
        """Samples [C, H, W] of some rows."""
        chosen, image = part.select_columns(columns), self._library.Image
        if len(columns) == 1 and isinstance(part.features[columns[0]], image):
            cells = chosen.cast_column(columns[0], image(decode=False))[rows][columns[0]]
            return [self._picture(cell, f"row {row} of {where}") for cell, row in zip(cells, rows, strict=True)]
        read = chosen.with_format("numpy")[rows]
        named = f"column {', '.join(columns)}"
        if any(read[name].dtype.kind not in "biuf" for name in columns):
            raise UserError(f"{named} of {where} holds neither pictures nor numbers, of one shape in each row")
        values = read[columns[0]] if len(columns) == 1 else np.stack([read[name] for name in columns], axis=1)
        entry = known(self.data_set)
        if entry and entry.values and values.ndim == 2 and values.shape[1] == np.prod(entry.shape):  # flat lists
            values = values.reshape(len(values), *entry.shape)
        elif values.ndim < 3:
            values = values.reshape(len(values), 1, 1, -1)
        if not (entry and entry.values) and values.dtype.kind in "biu":  # the library gives bytes as int64
            beyond = (values < 0) | (values > 255)
            if beyond.any():
                raise UserError(
                    f"{named} of {where} holds whole numbers beyond 0..255: scale them to 0..1, or to bytes"
                )
            values = values.astype(np.uint8)
        return arranged(values, f"{named} of {where}", entry, self.sides, self._notes)

    def _picture(self, cell: Any, where: str) -> np.ndarray:
        """Decode a picture from its bytes, or from a file in the library's own cache."""
        data, path = (cell.get(name) if isinstance(cell, dict) else None for name in ("bytes", "path"))
        if isinstance(data, bytes):
            return self._pictures.read(data, where)
        cache = Path(self._library.config.HF_CACHE_HOME).resolve()
        if isinstance(path, str) and Path(path).resolve().is_relative_to(cache):
            return self._pictures.read(Path(path), where)
        raise UserError(f"{where} holds no picture" + (", but the name of a file" if path else ""))

    def _labels(self, parts: Sequence[Any], column: str) -> list[np.ndarray]:
        """Labels int64 [n] of each split; sets the names of classes, and their number where it is known."""
        where = f"column {column} of {self.title}"
        names = getattr(parts[0].features[column], "names", None)
        if any(getattr(part.features[column], "names", None) != names for part in parts):
            raise UserError(f"{where} names its classes differently in each split")
        values = [_cells(part, column, where) for part in parts]
        if names is None and all(isinstance(value, str) for part in values for value in part):
            numbering = number_names({value for part in values for value in part}, known(self.data_set), "labels")
            self.label_names = numbering.names
            self._notes += numbering.notes
            return [np.array([numbering.label[value] for value in part], dtype=np.int64) for part in values]
        labels = [whole_numbers(part, where) for part in values]
        return labels if names is None else self._named(labels, list(names), where)

    def _named(self, labels: list[np.ndarray], names: list[str], where: str) -> list[np.ndarray]:
        """Labels of classes that have names: a known data set gives them its own numbers."""
        for part in labels:
            if missing := _without_name(part, names):
                raise UserError(f"{where} has no class for {missing}: choose splits with labels by --split")
        entry = known(self.data_set)
        numbers = [entry.label(name) for name in names] if entry else []
        if numbers and None not in numbers:
            return [np.array(numbers)[part] for part in labels]
        if entry and entry.by_name:
            raise UserError(f"{where} names classes that {entry.name} does not have: {quoted(names)}")
        self.label_names, self.num_classes = names, len(names)
        return labels

    def _clients(self, part: Any, column: str | None) -> np.ndarray:
        """Whose each sample is, [n] whole numbers or text; "" where no column tells."""
        if column is None:
            return np.full(len(part), "")
        where = f"column {column} of {self.title}"
        cells, names = _cells(part, column, where), getattr(part.features[column], "names", None)
        if all(isinstance(cell, str) for cell in cells):
            owner = np.array(cells)
            if (owner == "").any():
                raise UserError(f"{where} has no name in {row_of(owner == '')}: give every sample a client")
            return owner
        numbers = whole_numbers(cells, where)
        if not names:
            return numbers
        if missing := _without_name(numbers, names):
            raise UserError(f"{where} has no client for {missing}: give every sample a client")
        return np.array(names)[numbers]


def _without_name(numbers: np.ndarray, names: Sequence[str]) -> str:
    """The first row whose number, int64 [n], has no name, in words; "" where each has one."""
    beyond = (numbers < 0) | (numbers >= len(names))
    return f"{row_of(beyond)}, which is {numbers[int(np.argmax(beyond))]}" if beyond.any() else ""


def _cells(part: Any, column: str, where: str) -> list[Any]:
    """Values of a column; UserError where a row has none."""
    cells = list(part.select_columns([column]).with_format(None)[:][column])
    if None in cells:
        raise UserError(f"{where} is empty in row {cells.index(None)} (counted from 0): fill it or leave the row out")
    return cells


def _library() -> Any:
    try:
        library: Any = importlib.import_module("datasets")
    except ImportError:
        raise UserError("data sets of Hugging Face need its library: pip install 'fedscale_ext[datasets]'") from None
    version = str(getattr(library, "__version__", "0"))
    if not version.split(".")[0].isdecimal() or int(version.split(".")[0]) < _LEAST_VERSION:
        raise UserError(f"datasets {version} can run code of a repository; it takes version {_LEAST_VERSION} or later: "
                        "pip install -U datasets")  # fmt: skip
    return library


def _opened(library: Any, path: Path) -> Any:
    """Open a data set of the Hub, or a saved one: a ``Dataset``, or several by split."""
    if not on_hub(path):
        try:
            return library.load_from_disk(str(path))
        except Exception as error:
            raise UserError(f"{path} is no data set that save_to_disk wrote: {one_line(str(error), 200)}") from error
    name = _NAME.fullmatch(str(path).removeprefix(HUB))
    if name is None:
        raise UserError(
            f"{path}: write a data set of the Hub as hf:owner/name, with :config or @revision behind it where it has "
            "several"
        )
    try:
        return library.load_dataset(name["name"], name["config"], revision=name["revision"])
    except Exception as error:  # of the Hub's own and of the network, by no common class
        raise UserError(
            f"{path} is not on this machine and cannot be downloaded ({type(error).__name__}: "
            f"{one_line(str(error), 200)}); check name and network, or give a folder of save_to_disk"
        ) from error
