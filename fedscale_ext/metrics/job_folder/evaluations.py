"""Evaluations on disk: their figures in metrics.jsonl, and a file with a column per figure of the clients.

``evaluations/round-000050.safetensors`` holds, index client - 1, ``correct``, ``top5`` and ``count`` (in the
smallest type that holds them), ``loss`` (float64) and ``served``, the place of the client's model among the keys that
the metadata calls ``models``; ``named/0`` and so on the correct answers (float64) of the global models whose titles the
metadata calls ``named``; ``unmasked`` the correct answers without the mask of ``mask_test``, where there is one;
``confusion/sizes`` and so on the confusion matrices of the last test, of as many classes as the metadata's ``classes``;
``auc/areas`` and so on its AUC (:class:`fedscale_ext.core.auc.Auc`), if the job measured it.
As text, 500,000 clients would cost seconds and 10 MB each time, and the evaluations of a long job would take more
memory than all else.
"""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedscale_ext.core.auc import Auc
from fedscale_ext.core.confusion import Confusion, from_tensors, smallest, to_tensors
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import Evaluation
from fedscale_ext.metrics.accuracy import Accuracy, accuracy, client_accuracy, without_mask
from fedscale_ext.metrics.job_folder.jsonable import plain
from fedscale_ext.util.numbered_files import drop_later
from fedscale_ext.util.reading import load_json
from fedscale_ext.util.tensor_files import read_tensors, write_tensors

FOLDER = "evaluations"
_NAME = re.compile(r"(?:round|personalised|before_training|after_training|on_all)-(\d+)\.safetensors")
_CLASSES, _CONFUSION, _AUC = "classes", "confusion/", "auc/"
_AREAS = tuple(field.name for field in dataclasses.fields(Auc))
_TYPES = {"correct": np.float64, "top5": np.float64, "loss": np.float64, "count": np.int64}


class StoredEvaluation(Evaluation):
    """An evaluation that was written: its ``figures`` are at hand, ``path`` holds the columns of its clients.

    The columns and ``serve`` are read anew each time they are asked for; UserError where the file is
    missing or damaged.
    """

    figures: Accuracy
    path: Path

    def __init__(self, round: int, named: Mapping[str, tuple[float, float]], figures: Accuracy, path: Path) -> None:
        vars(self).update(round=round, named=named, figures=figures, path=path)

    def __getattr__(self, name: str) -> Any:
        if name not in _TYPES and name not in ("serve", "named_correct", "unmasked", "confusion", "auc"):
            raise AttributeError(name)
        return getattr(self.whole(), name)

    def whole(self) -> Evaluation:
        """Read the whole evaluation into memory; counts of correct answers are float64."""
        tensors, metadata = read_tensors(self.path)
        try:
            keys = load_json(metadata["models"])
            serve = tuple(keys[index] for index in tensors["served"].tolist())
            columns: dict[str, Any] = {name: tensors[name].numpy().astype(dtype) for name, dtype in _TYPES.items()}
            titles = load_json(metadata.get("named", "[]"))
            correct = {title: tensors[f"named/{index}"].numpy() for index, title in enumerate(titles)}
            unmasked = tensors["unmasked"].numpy().astype(np.float64) if "unmasked" in tensors else None
            confusion = _confusion(tensors, metadata)
            auc = _auc(tensors, confusion)
        except (KeyError, IndexError, TypeError, ValueError):
            raise UserError(f"{self.path} is not an evaluation of this version") from None
        columns |= {"named": self.named, "named_correct": correct, "unmasked": unmasked}
        return Evaluation(round=self.round, serve=serve, confusion=confusion, auc=auc, **columns)


@accuracy.register
def _(evaluation: StoredEvaluation) -> Accuracy:
    return evaluation.figures


@client_accuracy.register
def _(evaluation: StoredEvaluation) -> np.ndarray:
    return client_accuracy(evaluation.whole())  # each of its columns would read the file anew


def write_evaluation(
    log_dir: Path, evaluation: Evaluation, kind: str = "round"
) -> tuple[dict[str, Any], StoredEvaluation]:
    """Write the file of an evaluation below ``log_dir``; ``kind`` begins its name: round, or one of ``records.LAST``.

    Returns what its line of metrics.jsonl says, as JSON values, and the evaluation as one that is stored.
    """
    served = Counter(evaluation.serve)
    index_of_key = {key: index for index, key in enumerate(served)}
    columns = {name: np.asarray(getattr(evaluation, name)) for name in _TYPES}
    if evaluation.unmasked is not None:
        columns["unmasked"] = np.asarray(evaluation.unmasked)
    columns["served"] = np.fromiter(map(index_of_key.__getitem__, evaluation.serve), np.int64, len(evaluation.serve))
    tensors = {
        name: torch.from_numpy(column if name == "loss" else smallest(column)) for name, column in columns.items()
    }
    path = log_dir / FOLDER / f"{kind}-{evaluation.round:06d}.safetensors"
    metadata = {"models": json.dumps(list(index_of_key))}
    if evaluation.named_correct:
        metadata["named"] = json.dumps(list(evaluation.named_correct))
        for index, correct in enumerate(evaluation.named_correct.values()):
            tensors[f"named/{index}"] = torch.from_numpy(np.asarray(correct, dtype=np.float64))
    if evaluation.confusion is not None:
        metadata[_CLASSES] = str(evaluation.confusion.classes)
        matrices = to_tensors(evaluation.confusion)
        tensors |= {f"{_CONFUSION}{name}": tensor for name, tensor in matrices.items()}
    if evaluation.auc is not None:
        tensors |= {f"{_AUC}{name}": torch.from_numpy(getattr(evaluation.auc, name)) for name in _AREAS}
    digest = write_tensors(path, tensors, metadata)
    stored = StoredEvaluation(evaluation.round, evaluation.named, accuracy(evaluation), path)
    line = {
        "round": evaluation.round,
        "accuracy": plain(stored.figures),
        "named": plain(evaluation.named),
        "served": dict(served),
        "clients": path.relative_to(log_dir).as_posix(),
        "sha256": digest,
    }
    unmasked = without_mask(evaluation)
    if unmasked is not None:
        line["unmasked"] = plain(accuracy(unmasked).mean)
    return line, stored


def evaluation_from_json(log_dir: Path, data: Mapping[str, Any]) -> StoredEvaluation:
    """The evaluation that a line of metrics.jsonl tells of. KeyError and ValueError for anything else."""
    figures: dict[str, Any] = {name: math.nan if value is None else value for name, value in data["accuracy"].items()}
    figures["loss"] = read_number(data["accuracy"]["loss"])  # of a model that diverged it is "inf"
    figures["worst_client"] = data["accuracy"]["worst_client"]
    known = Accuracy(**{field.name: figures[field.name] for field in dataclasses.fields(Accuracy)})
    named = {title: (read_number(top1), read_number(loss)) for title, (top1, loss) in data["named"].items()}
    path = log_dir / data["clients"]
    if path.parent != log_dir / FOLDER or not _NAME.fullmatch(path.name):
        raise ValueError(f"clients: {data['clients']!r}")
    return StoredEvaluation(data["round"], named, known, path)


def drop_evaluations(log_dir: Path, after_round: int) -> None:
    """Delete the files of later rounds, which belong to a course of the job that was left."""
    drop_later(log_dir / FOLDER, _NAME, after_round)


def read_number(value: Any) -> float:
    """A float as :func:`fedscale_ext.metrics.job_folder.jsonable.plain` writes it, read back."""
    return math.nan if value is None else float(value)


def _confusion(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> Confusion | None:
    """The confusion matrices of a file; None where it has none. ValueError for damaged ones."""
    if _CLASSES not in metadata:
        return None
    named = {name.removeprefix(_CONFUSION): tensor for name, tensor in tensors.items() if name.startswith(_CONFUSION)}
    return from_tensors(named, int(metadata[_CLASSES]))


def _auc(tensors: Mapping[str, torch.Tensor], confusion: Confusion | None) -> Auc | None:
    """The AUC of a file; None where it has none. ValueError or KeyError for what does not fit ``confusion``."""
    if confusion is None or not any(name.startswith(_AUC) for name in tensors):
        return None
    columns = {name: tensors[f"{_AUC}{name}"].numpy().astype(np.float64) for name in _AREAS}
    pairs, classes = len(confusion.tested_classes[0]), confusion.classes
    if [len(columns[name]) for name in _AREAS] != [pairs, classes, classes]:
        raise ValueError("AUC of other clients or classes than the confusion matrices")
    return Auc(**columns)
