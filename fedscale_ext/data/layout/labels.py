"""Labels as a source has them (numbers or names), and the classes 0..K-1 that they become."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.registry import KnownDataSet
from fedscale_ext.data.wording import listed, quoted

_LARGEST = 2**53  # beyond it, a float does not stand for one whole number


def row_of(mask: np.ndarray) -> str:
    """The first row of a mask [n, ...] that has a True, in words; rows are counted from 0 as numpy does."""
    return f"row {int(np.argmax(mask.reshape(len(mask), -1).any(axis=1)))} (counted from 0)"


def whole_numbers(values: Any, where: str) -> np.ndarray:
    """Convert integers, booleans or whole floats to int64 [n]; UserError names ``where`` and the first other row."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise UserError(f"{where} are no list of labels") from error
    if array.ndim != 1 or (array.dtype.kind not in "biuf" and array.size):
        raise UserError(f"{where} must be a list of integers, not {array.dtype} of {array.ndim} dimensions")
    with np.errstate(invalid="ignore"):
        bad = (array != np.rint(array)) | (np.abs(array) > _LARGEST) if array.dtype.kind == "f" else array > _LARGEST
    if array.size and bad.any():
        value = array[int(np.argmax(bad))]
        raise UserError(f"{where} must be a list of integers, but {row_of(bad)} is {value}: correct it or leave it out")
    return array.astype(np.int64)


def as_text(values: np.ndarray, where: str) -> list[str]:
    """Decode an array of strings, or of bytes in UTF-8."""
    if values.dtype.kind == "U":
        return [str(value) for value in values]
    try:
        return [bytes(value).decode() for value in values]
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not text in UTF-8: save it as an array of strings") from error


class Numbering(NamedTuple):
    """The label of each name, the names of labels 0.. (() where names are numbers), and what is to be reported."""

    label: dict[str, int]
    names: Sequence[str]
    notes: list[str]


def number_names(names: Iterable[str], entry: KnownDataSet | None, what: str) -> Numbering:
    """Labels of ``what`` ("label folders"): numbers as they are, names in the order of a known data set, else in
    alphabetical order; UserError for an empty name, as of an empty cell."""
    present = sorted(set(names))
    if not all(name.strip() for name in present):
        raise UserError(f"the {what} are not complete, one is empty: give each sample a label, or leave it out")
    if all(name.isascii() and name.isdigit() and len(name) < 16 for name in present):
        label = {name: int(name) for name in present}
        return Numbering(label, (), _same_number(label, what))
    if entry and entry.label_names:
        by_entry = {name: entry.label(name) for name in present}
        unknown = [name for name, number in by_entry.items() if number is None]
        if not unknown:
            return Numbering({name: number for name, number in by_entry.items() if number is not None},
                             entry.label_names, [])  # fmt: skip
        if entry.by_name:
            raise UserError(f"{entry.name} has no class {quoted(unknown)}: correct the {what}")
        how = f"are no classes of {entry.name}, so all are numbered in alphabetical order"
        note = [f"the {what} {quoted(unknown)} {how}"]
    else:
        note = [f"the {what} are numbered in alphabetical order: {entry.name} has no names for labels"] if entry else []
    return Numbering({name: number for number, name in enumerate(present)}, present, note)


def _same_number(label: dict[str, int], what: str) -> list[str]:
    same = defaultdict(list)
    for name, number in label.items():
        same[number].append(name)
    return [f"the {what} {quoted(alike)} are one class" for alike in same.values() if len(alike) > 1]


class Classes(NamedTuple):
    """Labels int64 [n] from 0, how many classes there are, names of the first ones, and what is to be reported."""

    labels: np.ndarray
    number: int
    names: Sequence[str]
    notes: list[str]


def number_classes(
    labels: np.ndarray, entry: KnownDataSet | None, declared: int | None, names: Sequence[str]
) -> Classes:
    """Number the classes of a source's labels int [n].

    A known data set and a source that declares its number of classes keep their labels. Labels of other kinds are
    sorted and numbered from 0 where they leave gaps or begin elsewhere, and keep their values as names.
    """
    if entry is not None:
        return Classes(labels, entry.classes, names or entry.label_names, [])
    if declared is not None:
        return Classes(labels, declared, names, [])
    values, ranks = np.unique(labels, return_inverse=True)
    if names or np.array_equal(values, np.arange(len(values))):
        return Classes(labels, max(len(names), int(values[-1]) + 1), names, [])
    note = f"labels {listed(values.tolist(), 8)} became classes {_range(len(values))}"
    return Classes(ranks.reshape(-1).astype(np.int64), len(values), [str(value) for value in values.tolist()], [note])


def _range(classes: int) -> str:
    return "0" if classes == 1 else "0 and 1" if classes == 2 else f"0 to {classes - 1}"


def class_notes(
    labels: np.ndarray, train: np.ndarray, classes: int, names: Sequence[str], where: dict[int, str]
) -> list[str]:
    """Sentences about classes that share a name, or have no sample, all samples, a single one, or none to train on.

    ``labels`` int [n], ``train`` bool [n]; ``where`` names the first sample of each class.
    """
    count = np.bincount(labels, minlength=classes)
    notes = [*_shared_names(names), *absent_note(count, names)]
    if classes == 1:
        notes.append(f"all samples have one class, {class_text(0, names)}: a model has nothing to tell apart")
    single = np.flatnonzero(count == 1).tolist()
    sample = f": {where[single[0]]}" if single and single[0] in where else ""
    if len(single) == 1:
        notes.append(f"{class_text(single[0], names)} has a single sample{sample}")
    elif single:
        first = f"; that of {class_text(single[0], names)} is {where[single[0]]}" if sample else ""
        notes.append(f"{len(single):,} classes have a single sample each: {_numbers(single, names)}{first}")
    return [*notes, *untrained_note(labels[train], labels[~train], names)]


def untrained_note(train: np.ndarray, test: np.ndarray, names: Sequence[str] = ()) -> list[str]:
    """A sentence about classes that have test samples and no training sample; [] if there is none.

    Args:
        train: Class of each training sample, int [n].
        test: Class of each test sample, int [k].
        names: Names of the classes.

    """
    untrained = np.setdiff1d(test, train).tolist()
    if len(untrained) == 1:
        return [f"{class_text(untrained[0], names)} has only test samples: nobody trains on it"]
    return [f"{len(untrained):,} classes have only test samples: {_numbers(untrained, names)}"] if untrained else []


def _shared_names(names: Sequence[str]) -> list[str]:
    """A sentence for each name that several classes have."""
    classes = defaultdict(list)
    for number, name in enumerate(names):
        classes[name].append(number)
    return [
        f"classes {listed(numbers)} have the name {name!r}: results show them apart under one name"
        for name, numbers in classes.items()
        if len(numbers) > 1
    ]


def absent_note(count: np.ndarray, names: Sequence[str] = ()) -> list[str]:
    """A sentence about classes without a sample, for ``count`` [classes]; [] where each has one."""
    absent = np.flatnonzero(count == 0).tolist()
    if len(absent) == 1:
        return [f"{class_text(absent[0], names)} has no sample"]
    return [f"{len(absent):,} of {len(count):,} classes have no sample: {_numbers(absent, names)}"] if absent else []


def spent_note(train: np.ndarray, public: np.ndarray, test: np.ndarray, names: Sequence[str] = ()) -> list[str]:
    """A sentence about classes whose training samples all became public; [] if there is none.

    Args:
        train: Class of each training sample that clients have left, int [n].
        public: Class of each sample that became public, int [m].
        test: Class of each test sample of clients, int [k].
        names: Names of the classes.

    """
    spent = sorted(set(public.tolist()) - set(train.tolist()))
    if not spent:
        return []
    tested = int(np.isin(test, spent).sum())
    which, pronoun = ("this class", "it") if len(spent) == 1 else ("these classes", "them")
    return [
        f"public samples take all training samples of class {_numbers(spent, names)}, so that clients cannot learn "
        f"{which}; {tested:,} of clients' {len(test):,} test samples have {pronoun}: set fewer public_samples to keep "
        "some"
    ]


def _numbers(classes: Sequence[int], names: Sequence[str]) -> str:
    """The first few classes by number and name."""
    return listed([class_text(label, names).removeprefix("class ") for label in classes])


def class_text(label: int, names: Sequence[str] = ()) -> str:
    """Write a class as its number, and its name where it has one."""
    name = names[label] if label < len(names) else str(label)
    return f"class {label}" if name == str(label) else f"class {label} ({quoted([name])})"
