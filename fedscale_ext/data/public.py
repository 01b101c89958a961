"""Public data, which the server alone holds: samples kept back from the clients, or those of another data set."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.held_back import HeldBack, choose
from fedscale_ext.data.layout import DESCRIPTION, Description, describe, read_description
from fedscale_ext.data.mapping import data_folder
from fedscale_ext.data.registry import Shape
from fedscale_ext.data.store import DataSet, open_data_set


@dataclass(frozen=True)
class PublicData:
    """Samples ``x`` float32 [n, C, H, W], normalised; ``labels`` int64 [n] of the clients' classes, None where the
    classes are others; ``says`` tells people what it is."""

    x: torch.Tensor
    labels: torch.Tensor | None
    says: str


def of_the_same_task(data: DataSet, fraction: float) -> PublicData:
    """Return the first ``fraction`` of the samples that the clients' data set keeps back."""
    rows = _first(data.public_rows, fraction)
    x, labels = data.tensors(rows)
    return PublicData(x, labels, f"{len(rows)} samples of {data.name} that no client has")


def of_another_folder(
    folder: str | os.PathLike[str], how: HeldBack, fraction: float, seed: int, data: DataSet
) -> PublicData:
    """Read samples of a folder in FedScale's layout; its clients and split are ignored.

    Labels hold where both are of one data set. UserError where shapes differ, or a sample is a client's too.
    """
    try:
        root = data_folder(folder)
        kind = read_description(root).get("data_set")
        if kind is None:
            raise UserError(f"{folder} has no {DESCRIPTION}; make it with `fedscale dataset import …`")
        public = open_data_set(root, kind, test_split=0.0, input_shape=data.input_shape)
    except UserError as error:
        raise UserError(f"public_dir cannot be used: {error}") from None
    rows = _first(choose(public.y, how, seed), fraction)
    _check_apart(root, public, rows, data)
    x, labels = public.tensors(rows)
    same = kind.lower() == data.data_set.lower() and public.num_classes == data.num_classes
    task = "the clients' classes" if same else "other classes"
    says = f"{len(rows)} samples of {public.name}, with {task}{_changed(describe(root, kind), data.input_shape)}"
    return PublicData(x, labels if same else None, says)


def _changed(about: Description, shape: Shape) -> str:
    """What was done to samples that came as ``about`` says to have that shape; nothing for none."""
    if about.shape == shape:
        return ""
    before, after = ("x".join(map(str, each)) for each in (about.shape, shape))
    if about.values:
        return f", their values put from {before} into {after}"
    turned = {(3, 1): ", their colours made grey", (1, 3): ", grey in three channels"}
    return f", resized from {before} to {after}{turned.get((about.shape[0], shape[0]), '')}"


def _first(rows: np.ndarray, fraction: float) -> np.ndarray:
    return rows[: max(1, round(fraction * len(rows)))]


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
