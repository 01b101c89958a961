"""Write samples as a data folder in FedScale's layout: all of it or nothing."""

import csv
import json
import os
import shutil
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.sample_files import VALUES, ending, read_written, write_sample
from fedscale_ext.data.formats.source import Source
from fedscale_ext.data.importing.allocation import Allocation
from fedscale_ext.data.importing.grouping import grouped
from fedscale_ext.data.importing.notes import SampleNotes, alike_note, client_notes
from fedscale_ext.data.importing.shift import Shift
from fedscale_ext.data.layout.data_folder import CSV_FOLDER
from fedscale_ext.data.layout.files import DESCRIPTION, notes_in, read_description
from fedscale_ext.data.layout.labels import Classes, class_notes, number_classes
from fedscale_ext.data.layout.split import group
from fedscale_ext.data.registry import Shape, known
from fedscale_ext.util.atomic_files import refusing
from fedscale_ext.util.temporary_folders import clear_abandoned, new_folder

_PER_FOLDER = 1000
_DESCRIBED = (
    "name", "data_set", "generated", "classes", "label_names", "shape", "clients", "train_samples", "test_samples",
    "left_out", "absent", "notes",
)  # fmt: skip
_OLDER = "an older version wrote this folder and kept no notes: --force imports it anew"


@dataclass(frozen=True)
class Written:
    """What a data folder holds after an import or synthesis; ``already_there``: nothing was done because
    the folder held the same data, made with the same settings; ``left_out`` counts samples that the source has
    and a list of clients does not name, or a partition leaves over. ``label_names`` are those of classes 0.., () where
    they have none. ``notes``: what the import changed, left out or noticed, a sentence each."""

    data_dir: Path
    name: str
    data_set: str
    generated: bool
    clients: int
    train_samples: int
    test_samples: int
    classes: int
    shape: Shape
    already_there: bool
    seconds: float
    left_out: int = 0
    absent: int = 0
    label_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check_out_dir(out_dir: Path, force: bool, sources: Sequence[Path] = ()) -> dict[str, Any]:
    """Return the description of the data set in ``out_dir``, {} where a new one may be written.

    UserError for a folder that no data set may replace, such as one that holds one of its ``sources``. UserError also,
    without ``force``, for content that no command of this package made.
    """
    resolved = out_dir.resolve()
    if resolved in (Path.cwd(), *Path.cwd().parents, Path.home()):
        raise UserError(f"{out_dir} cannot be replaced by a data set: name a folder of its own")
    for source in sources:
        if source.resolve().is_relative_to(resolved):
            raise UserError(f"{out_dir} holds the source {source}, which would be lost: name another folder")
    if out_dir.exists() and not out_dir.is_dir():
        raise UserError(f"{out_dir} is a file: name a folder")
    if force or not out_dir.is_dir() or not any(out_dir.iterdir()):
        return {}
    content = read_description(out_dir) if (out_dir / DESCRIPTION).exists() else {}
    if not content.get("how"):
        raise UserError(f"{out_dir} is not empty and was not made by this command: name another folder or add --force")
    return content


def already_written(
    out_dir: Path, how: str, settings: dict[str, Any], force: bool, sources: Sequence[Path] = ()
) -> Written | None:
    """What is in ``out_dir`` if it was made this way with these settings; None when it may be written.

    UserError when something else is there and ``force`` is not set, or when the folder is never to be replaced, as one
    that holds one of the ``sources``.
    """
    content = check_out_dir(out_dir, force, sources)
    if not content:
        return None
    train_csv = out_dir / CSV_FOLDER / "train.csv"
    if content["how"] != how or content.get("settings") != settings or not train_csv.exists():
        raise UserError(f"{out_dir} already holds a data set made with other settings: add --force to replace it")
    try:
        return Written(
            out_dir, str(content["name"]), str(content["data_set"]), bool(content["generated"]),
            int(content["clients"]), int(content["train_samples"]), int(content["test_samples"]),
            int(content["classes"]), tuple(content["shape"]), True, 0.0, int(content.get("left_out", 0)),
            int(content.get("absent", 0)), tuple(content.get("label_names", ())),
            tuple(notes_in(content)) if "notes" in content else (_OLDER,),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{out_dir / DESCRIPTION} is incomplete: add --force to write {out_dir} anew") from error


class LayoutWriter:
    """Collects samples in a folder beside ``out_dir`` that :meth:`finish` renames to it.

    Use as a context manager; leaving it without :meth:`finish` removes what was written. Where the process was killed,
    a later one of that name removes it after a day. Only a few numbers per sample stay in memory. Pictures are PNG
    files, values npy, speech wav, 1,000 to a folder, numbered as they came.
    """

    def __init__(
        self, out_dir: Path, data_set: str, name: str, *, how: str, settings: dict[str, Any], generated: bool = False
    ) -> None:
        self.out_dir, self.data_set, self.name = out_dir, data_set, name
        self.how, self.settings, self.generated = how, settings, generated
        self.entry = known(data_set)
        self._clients: dict[str, int] = {}
        self._client, self._label, self._test = array("i"), array("q"), array("b")
        self._first: dict[int, str] = {}  # what the user calls the first sample of each label
        self._seen = SampleNotes()
        self._started = time.monotonic()
        # FedScale's OpenImage looks below data_dir/train; test samples move to data_dir/test at the end
        self._ending = ""  # of the samples' files: a data set's are all of one kind
        self._images = "train/images" if self.entry and self.entry.split_folders else "images"
        with refusing(out_dir):
            out_dir.parent.mkdir(parents=True, exist_ok=True)
            unfinished = f".{out_dir.name}.unfinished-"
            clear_abandoned(out_dir.parent, unfinished)
            self._folder = new_folder(out_dir.parent, unfinished)

    def __enter__(self) -> "LayoutWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise UserError(f"{self.out_dir} cannot be written: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self._label)

    def add(self, x: np.ndarray, label: int, client: str = "", test: bool | None = None, where: str = "") -> None:
        """Write one sample: uint8 pixels or float16 values [C, H, W], or int16 speech [n]; its label, whose
        it is ("" where a partition will tell), whether its source calls it a test sample (None: the source
        has no split), and what the user calls it."""
        where = where or f"sample {len(self)} (counted from 0)"
        if self.entry and not 0 <= label < self.entry.classes:
            hint = "; where labels are places in an array of words, name it by --names"
            raise UserError(
                f"{where} has label {label}, out of range for {self.data_set} (0 to {self.entry.classes - 1})"
                + (hint if self.entry.by_name else "")
            )
        self._ending = ending(x)
        path = self._folder / self._path(len(self))
        if len(self) % _PER_FOLDER == 0:
            path.parent.mkdir(parents=True)
        self._check(x)
        self._seen.see(x, where)
        self._first.setdefault(label, where)
        write_sample(path, x)
        self._client.append(self._clients.setdefault(client, len(self._clients)))
        self._label.append(label)
        self._test.append(-1 if test is None else int(test))

    def _check(self, x: np.ndarray) -> None:
        values = bool(self.entry and self.entry.values)
        if values == (x.dtype == np.uint8):
            kinds = ("pictures", "sounds or values")
            raise UserError(f"samples of {self.data_set} are {kinds[values]}, but these are {kinds[not values]}")
        if self.entry and x.dtype == VALUES and x.shape != self.entry.shape:
            raise UserError(f"samples of {self.data_set} have the shape {self.entry.shape}, but these {x.shape}")

    def _path(self, sample: int) -> str:
        return f"{self._images}/{sample // _PER_FOLDER:04d}/{sample:07d}{self._ending}"

    def finish(
        self, allocation: Allocation, shape: Shape, source: Source | None = None, notes: Sequence[str] = (),
        shift: Shift | None = None,
    ) -> Written:  # fmt: skip
        """Decide whose each sample is and which are for tests, write the csv files, give the folder its name.

        A source's own split is kept. Without one, a share of each client's samples go to test.csv (none: no test.csv).

        Args:
            allocation: how samples are shared out.
            shape: what models get.
            source: where the samples come from, read to its end; None where nothing is declared of them.
            notes: what was changed in addition to the notes of ``source``, a sentence each.
            shift: how each client's samples differ from those of others.

        """
        if not len(self):
            raise UserError(f"there are no samples to write to {self.out_dir}")
        source = source or Source()
        split = np.array(self._test)
        numbered = number_classes(np.array(self._label), self.entry, source.num_classes, source.label_names)
        labels = numbered.labels
        if allocation.partition is not None and shift is not None and shift.by_domain:
            client, names = allocation.clients_by_domain(labels, split, np.array(self._client), list(self._clients))
        elif allocation.partition is not None:
            clients = allocation.partition.clients
            if allocation.partition.grouped:
                client = grouped(np.array(self._client), len(self._clients), clients, allocation.seed)
            else:
                client = allocation.clients(labels, split)
            names = [f"c{number:0{len(str(clients))}d}" for number in range(1, clients + 1)]
        else:
            client, names = np.array(self._client), list(self._clients)
        test = allocation.test_samples(client, len(names), labels, split)
        nobodys = client < 0
        train = ~test & ~nobodys
        if not train.any():
            raise UserError(f"the samples for {self.out_dir} are all test samples: there is nothing to train on")
        rows, _ = group(client, len(names))
        for row in np.flatnonzero(nobodys).tolist():
            (self._folder / self._path(row)).unlink()
        if shift is not None:
            self._shift(shift, client, len(names), allocation.seed)
        for file, mask in (("train", train), ("test", test)):
            if mask.any():
                self._write_csv(file, rows[mask[rows]], client, names, labels, numbered.names)
        written = Written(
            self.out_dir,
            self.name,
            self.data_set,
            self.generated,
            clients=len(np.unique(client[train])),
            train_samples=int(train.sum()),
            test_samples=int(test.sum()),
            classes=numbered.number,
            shape=shape,
            already_there=False,
            seconds=time.monotonic() - self._started,
            left_out=source.left_out + int(nobodys.sum()),
            absent=source.absent,
            label_names=tuple(numbered.names),
            notes=(*numbered.notes, *source.notes(), *notes, *self._notes(numbered, client, names, train, test)),
        )
        about = {key: getattr(written, key) for key in _DESCRIBED} | {"how": self.how, "settings": self.settings}
        (self._folder / DESCRIPTION).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        self._publish()
        return written

    def _shift(self, shift: Shift, client: np.ndarray, clients: int, seed: int) -> None:
        """Write the samples anew, as their clients see them; ``client`` int [n], -1 for samples of nobody."""
        values = bool(self.entry and self.entry.values)
        for row, owner in enumerate(client.tolist()):
            if owner >= 0 and shift.changes(owner, clients):
                path = self._folder / self._path(row)
                x = read_written(path, values)
                write_sample(path, shift.apply(x, owner, clients, self.entry, seed, row))

    def _notes(
        self, numbered: Classes, client: np.ndarray, names: Sequence[str], train: np.ndarray, test: np.ndarray
    ) -> list[str]:
        """What is worth knowing about classes, clients and samples that are ``train`` or ``test``, bool [n]."""
        labels, used = numbered.labels, train | test
        first = {}
        if used.all():  # else the only sample of a class need not be the first that came
            rows = np.unique(labels, return_index=True)[1].tolist()
            first = {int(labels[row]): self._first[self._label[row]] for row in rows}
        sizes = [np.bincount(client[part], minlength=len(names)) for part in (train, test)]
        return [
            *([] if self.entry else alike_note(numbered.names, "labels")),
            *class_notes(labels[used], train[used], numbered.number, numbered.names, first),
            *client_notes(names, *sizes),
            *self._seen.sentences(labels, train, test, self._path),
        ]

    def _write_csv(
        self,
        split: str,
        rows: np.ndarray,
        client: np.ndarray,
        names: Sequence[str],
        labels: np.ndarray,
        label_names: Sequence[str],
    ) -> None:
        below = "" if self._images == "images" else "train/"
        (self._folder / CSV_FOLDER).mkdir(exist_ok=True)
        if below:
            (self._folder / split).mkdir(exist_ok=True)
        with open(self._folder / CSV_FOLDER / f"{split}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("client_id", "sample_path", "label_name", "label_id"))
            for row in rows.tolist():
                label = int(labels[row])
                path = self._path(row)
                if below and split == "test":
                    target = self._folder / "test" / path.removeprefix(below)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.rename(self._folder / path, target)
                name = label_names[label] if label < len(label_names) else str(label)
                writer.writerow((names[client[row]], path.removeprefix(below), name, label))

    def _publish(self) -> None:
        """Rename the finished folder to ``out_dir``; what was there goes only once the new one is complete."""
        old = None
        if self.out_dir.exists():
            old = new_folder(self.out_dir.parent, f".{self.out_dir.name}.")
            os.rename(self.out_dir, old / "replaced")
        os.rename(self._folder, self.out_dir)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
