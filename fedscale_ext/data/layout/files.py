"""What a data folder holds: its csv files and ``dataset.json``, and both of its csv files as read."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.core.data_names import data_set_name
from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.core.shapes import check_shape
from fedscale_ext.data.layout.data_folder import CSV_FOLDER, data_folder, ways_out
from fedscale_ext.data.layout.labels import absent_note
from fedscale_ext.data.layout.sample_csv import MAX_CLASSES, Problem, SampleTable, read_sample_csv, stop
from fedscale_ext.data.registry import KNOWN, Shape, canonical, known
from fedscale_ext.util.reading import read_json

DESCRIPTION = "dataset.json"


@dataclass(frozen=True)
class Description:
    """A data set's name, kind (``data_set`` of a configuration), shape, classes (None: not stated), whether its
    pictures were generated, and whether samples are ``values`` instead of pixels; ``stored`` is the shape that they
    are decoded to, another one of as many numbers where values are asked for so; ``written`` is the content of
    dataset.json, {} where there is none."""

    name: str
    data_set: str
    shape: Shape
    stored: Shape
    classes: int | None
    generated: bool
    values: bool
    written: dict[str, Any]


def read_description(folder: Path) -> dict[str, Any]:
    """Read the folder's dataset.json, {} where there is none; UserError where it is broken."""
    path = folder / DESCRIPTION
    try:
        content = read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): import or synthesize the data set again") from error
    kinds = {"settings": dict, "name": str, "data_set": str, "generated": bool, "notes": list, "label_names": list}
    whole = isinstance(content, dict)
    whole = whole and all(isinstance(content.get(key, kind()), kind) for key, kind in kinds.items())
    if not whole or not all(isinstance(text, str) for key in ("notes", "label_names") for text in content.get(key, ())):
        raise UserError(f"{path} is not a description of a data set: import or synthesize the data set again")
    if "data_set" in content:  # folders from before there was one spelling
        content["data_set"] = data_set_name(content["data_set"])
    return content


def notes_in(content: dict[str, Any]) -> list[str]:
    """Return the notes of a data set's import, a sentence each."""
    return [one_line(note, 2000) for note in content.get("notes", ())]


def describe(folder: Path, data_set: str, input_shape: tuple[int, int, int] | None = None) -> Description:
    """Put together what is known of a data set: the caller's shape, then dataset.json, then the registry."""
    written, entry = read_description(folder), known(data_set)
    data_set = canonical(data_set)
    shape = input_shape or written.get("shape") or (entry and entry.shape)
    classes = written.get("classes", entry.classes if entry else None)
    if not isinstance(shape, list | tuple):
        names = ", ".join(item.name for item in KNOWN)
        raise UserError(
            f"data_set {data_set!r} is not known ({names}) and {folder} has no {DESCRIPTION}: "
            "correct data_set or import the data with `fedscale dataset import …`"
        )
    if classes is not None and not (type(classes) is int and 1 <= classes <= MAX_CLASSES):
        limits = f"a number from 1 to {MAX_CLASSES}"
        raise UserError(f"classes in {folder / DESCRIPTION} must be {limits}, not {classes!s:.40}")
    kind = written.get("data_set", data_set)
    if kind.lower() != data_set.lower():
        raise UserError(f"{folder} holds data of data_set {kind!r}, not {data_set!r}: correct data_set or data_dir")
    name = one_line(written.get("name", data_set), 200)
    values = bool(entry and entry.values)
    shape = check_shape(shape, values)
    stored = entry.shape if entry and values else shape
    if math.prod(shape) != math.prod(stored):
        raise UserError(
            f"samples of {data_set} have the shape {stored} and cannot be resized to {shape}, "
            "only given another shape of as many numbers"
        )
    return Description(name, data_set, shape, stored, classes, written.get("generated", False), values, written)


def gaps_note(about: Description, labels: np.ndarray) -> list[str]:
    """A sentence about classes of a kind of one's own that have no sample, for all ``labels`` int [n]; [] where each
    has one, or a known data set says what its classes are."""
    if known(about.data_set) is not None or not len(labels):
        return []
    count = np.bincount(labels, minlength=about.classes or 0)
    source = "by the labels" if about.classes is None else f"by {DESCRIPTION}"
    names = about.written.get("label_names", ())
    return [f"{len(count):,} classes {source}: {note}" for note in absent_note(count, names)]


def names_in(content: dict[str, Any]) -> list[str]:
    """Return the names of labels 0.. in a dataset.json, [] where it has none."""
    return list(content.get("label_names", ()))


def read_layout(
    data_dir: str | os.PathLike[str],
    data_set: str,
    classes: int | None,
    data_map_file: str | os.PathLike[str] | None = None,
    problem: Problem = stop,
) -> tuple[SampleTable, SampleTable | None]:
    """Read the rows of train.csv (or of ``data_map_file`` in its place) and of test.csv, None where there is none.

    The clients of the second start with those of the first. UserError when a csv is missing or has no rows.
    """
    folder = data_folder(data_dir, data_set)
    entry = known(data_set)
    roots = [folder / split if entry and entry.split_folders else folder for split in ("train", "test")]
    train_csv = Path(data_map_file).expanduser() if data_map_file else folder / CSV_FOLDER / "train.csv"
    test_csv = folder / CSV_FOLDER / "test.csv"
    label_of = entry.label if entry and entry.by_name else None
    train = read_sample_csv(train_csv, roots[0], classes, problem, top=folder, label_of=label_of, data_set=data_set)
    test = None
    if test_csv.exists():
        test = read_sample_csv(
            test_csv, roots[1], classes, problem, known_clients=train.clients, top=folder, label_of=label_of,
            data_set=data_set,
        )  # fmt: skip
        if not len(test):
            problem("row", f"{test_csv} has no usable rows: delete it to hold out a part of each client's samples")
    if not len(train):
        problem("row", f"{train_csv} has no usable rows: {ways_out(data_set)}")
    return train, test
