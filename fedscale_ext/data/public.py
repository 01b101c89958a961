"""Public data, which only the server holds: samples kept back from the clients, or those of another data set."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch

from fedscale_ext.core.errors import UserError, listed
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.data.layout.files import DESCRIPTION, Description, describe, names_in, read_description
from fedscale_ext.data.public_draw import PublicDraw, choose
from fedscale_ext.data.registry import Shape, known
from fedscale_ext.data.store import DataSet, open_data_set


@dataclass(frozen=True)
class PublicData:
    """Samples ``x`` float32 [n, C, H, W], normalised; ``labels`` int64 [n] of the clients' classes, None where the
    classes are others; ``description`` tells people what it is."""

    x: torch.Tensor
    labels: torch.Tensor | None
    description: str


def of_the_same_task(data: DataSet, fraction: float, balanced: bool = False) -> PublicData:
    """Return the first ``fraction`` of the samples that the clients' data set keeps back.

    ``balanced``: as many of each class were to be kept back; ``description`` tells if clients could not spare so many.
    """
    rows = _first(data.public_rows, fraction)
    x, labels = data.tensors(rows)
    return PublicData(
        x, labels, f"{len(rows)} samples of {data.name} that no client has{_scarce(data, rows, balanced)}"
    )


def _scarce(data: DataSet, rows: np.ndarray, balanced: bool) -> str:
    """Say which classes gave fewer samples than others; nothing if all gave as many."""
    present = np.unique(data.y[np.concatenate([data.train.rows, data.public_rows])])
    counts = np.bincount(data.y[rows], minlength=data.num_classes)[present]
    if not balanced or counts.max() - counts.min() <= 1:
        return ""
    few = [str(label) for label in present[counts < counts.max() - 1].tolist()]
    return f"; not as many of each class: clients spare {counts.min()} to {counts.max()}, fewer of class {listed(few)}"


def of_another_folder(
    folder: str | os.PathLike[str],
    how: PublicDraw,
    fraction: float,
    seed: int,
    data: DataSet,
    client_labels: Sequence[str] = (),
) -> PublicData:
    """Read samples of a folder in FedScale's layout; its clients and split are ignored.

    Its labels are the clients' if both are of one kind, with as many classes and equal names of them.
    ``client_labels`` are the names of the clients' labels, empty if they have none. UserError where shapes differ, or a
    sample is a client's too.
    """
    try:
        root = data_folder(folder)
        written = read_description(root)
        kind = written.get("data_set")
        if kind is None:
            raise UserError(f"{folder} has no {DESCRIPTION}; make it with `fedscale dataset import …`")
        public = open_data_set(root, kind, test_split=0.0, input_shape=data.input_shape)
    except UserError as error:
        raise UserError(f"public_dir cannot be used: {error}") from None
    rows = _first(choose(public.y, how, seed), fraction)
    _check_apart(root, public, rows, data)
    x, labels = public.tensors(rows)
    alike = kind.lower() == data.data_set.lower() and public.num_classes == data.num_classes
    difference = _other_label(client_labels, names_in(written), kind) if alike else None
    same = alike and difference is None
    task = "the clients' classes" if same else "other classes"
    reason = f": {difference}" if difference else ""
    description = (
        f"{len(rows)} samples of {public.name}, with {task}{_changed(describe(root, kind), data.input_shape)}{reason}"
    )
    return PublicData(x, labels if same else None, description)


def _other_label(clients: Sequence[str], public: Sequence[str], kind: str) -> str | None:
    """Say which label means something else in the public data; None if all labels mean the same."""
    entry = known(kind)
    usual = entry.label_names if entry else ()
    pairs = zip_longest(clients or usual, public or usual, fillvalue="")
    return next(
        (f"label {label} is {mine!r} of the clients and {theirs!r} there"
         for label, (mine, theirs) in enumerate(pairs) if mine != theirs),
        None,
    )  # fmt: skip


def _changed(about: Description, shape: Shape) -> str:
    """What was done to samples that came as ``about`` says to have that shape; nothing for none."""
    if about.shape == shape:
        return ""
    before, after = ("x".join(map(str, each)) for each in (about.shape, shape))
    if about.values:
        return f", their values put from {before} into {after}"
    turned = {(3, 1): ", their colours made grey", (1, 3): ", grey in three channels"}
    return f", resized from {before} to {after}{turned.get((about.shape[0], shape[0]), '')}"


def used_samples(samples: int, fraction: float) -> int:
    """Return how many of the public samples ``public_fraction`` leaves."""
    return max(1, round(fraction * samples))


def _first(rows: np.ndarray, fraction: float) -> np.ndarray:
    return rows[: used_samples(len(rows), fraction)]


def _check_apart(folder: Path, public: DataSet, rows: np.ndarray, data: DataSet) -> None:
    """UserError where a public sample is among the clients' (training or test) samples."""
    if public.x.dtype != data.x.dtype:
        return
    held = {_fingerprint(sample) for sample in data.x}
    shared = sum(_fingerprint(public.x[row]) in held for row in rows)
    if shared:
        raise UserError(
            f"{shared} of {len(rows)} public samples of {folder} are clients' samples too, which only they may hold; "
            "leave public_dir out, and public_samples are taken from what clients have"
        )


def _fingerprint(sample: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(sample).tobytes(), digest_size=16).digest()
