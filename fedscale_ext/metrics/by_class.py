"""Figures of the classes: balanced accuracy, macro F1, and the accuracy of each class.

A class counts for a client if the client has test samples of it:

- *Balanced accuracy* of a client is the mean, over the classes among its test samples, of the share that is right.
  Classes that it has no test samples of do not count.
- *F1* of a class is 2 TP / (2 TP + FP + FN). *Macro F1* of a client is the mean over the classes that are among its
  test samples or were predicted for one. A class that was predicted without being there counts, with 0.
- AUC is there if the job measured it (``auc.py``).
- *Pooled* figures are of the test samples of all clients together, as if one client had them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedscale_ext.core.confusion import Confusion
from fedscale_ext.core.missing_values import ratios
from fedscale_ext.core.types import Evaluation
from fedscale_ext.data.registry import known
from fedscale_ext.metrics.auc import auc_summary, class_auc

TEXT = "the classes are the next characters of a text; perplexity stands beside accuracy"
NOT_ENDED = "classes are counted in the last test of a job"
UNTESTED = "no client was tested"


@dataclass(frozen=True)
class ByClass:
    """Figures of each class, over the test samples of some clients together; arrays are indexed by class.

    Attributes:
        samples: int64 [classes], test samples of the class.
        predicted: int64 [classes], test samples that were taken for it.
        accuracy: float64 [classes], the share of its samples that is right; NaN where it has none.
        f1: float64 [classes]; NaN where it has no samples and was never predicted.

    """

    samples: np.ndarray
    predicted: np.ndarray
    accuracy: np.ndarray
    f1: np.ndarray


def why_without_classes(config: Mapping[str, Any]) -> str | None:
    """Why a job has no figures of classes, whatever it trains; None where it has some. ``config`` is its settings."""
    entry = known(str(config.get("data_set", "")))
    return TEXT if entry is not None and entry.text else None


def balanced_accuracy(confusion: Confusion) -> np.ndarray:
    """float64[clients]: balanced accuracy of each client; NaN for one without test samples."""
    client, samples, _, right = _by_client_and_class(confusion)
    there = samples > 0
    return _means(right[there] / samples[there], client[there], confusion.num_clients)


def macro_f1(confusion: Confusion) -> np.ndarray:
    """float64[clients]: macro F1 of each client; NaN for one without test samples."""
    client, samples, predicted, right = _by_client_and_class(confusion)
    return _means(2 * right / (samples + predicted), client, confusion.num_clients)


def by_class(confusion: Confusion) -> ByClass:
    """Figures of each class, over all clients together."""
    right = np.where(confusion.true == confusion.predicted, confusion.counts, 0)
    samples, predicted, correct = (
        np.bincount(of, counts, confusion.classes).astype(np.int64)
        for of, counts in (
            (confusion.true, confusion.counts), (confusion.predicted, confusion.counts), (confusion.true, right)
        )
    )  # fmt: skip
    return ByClass(samples, predicted, ratios(correct, samples), ratios(2 * correct, samples + predicted))


def class_summary(evaluation: Evaluation | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """The figures for summary.json, or ``absent``, the reason why there are none; ``config`` is the job's settings."""
    absent = why_without_classes(config)
    if absent is None and (evaluation is None or not np.any(evaluation.count)):
        absent = UNTESTED
    confusion = None if evaluation is None else evaluation.confusion
    if absent is not None or evaluation is None or confusion is None:
        return {"absent": absent or NOT_ENDED}
    pooled, auc = confusion.over_all(), evaluation.auc
    return {
        "round": evaluation.round,
        **{
            name: {"mean": float(np.nanmean(of(confusion))), "pooled": float(of(pooled)[0]),
                   "per_client": of(confusion)}
            for name, of in (("balanced_accuracy", balanced_accuracy), ("macro_f1", macro_f1))
        },
        **({"auc": auc_summary(confusion, auc)} if auc is not None else {}),
        "classes": vars(by_class(confusion)) | ({"auc": class_auc(confusion, auc)} if auc is not None else {}),
    }  # fmt: skip


def _by_client_and_class(confusion: Confusion) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Index of the client, samples, predictions and correct ones, of each client's classes; [pairs] each.

    The pairs are those of a client and a class that it has test samples of, or that was predicted for one.
    """
    base = confusion.owner * confusion.classes
    keys = np.concatenate([base + confusion.true, base + confusion.predicted])
    pairs, index = np.unique(keys, return_inverse=True)
    true, predicted = np.split(index, 2)
    right = np.where(confusion.true == confusion.predicted, confusion.counts, 0)
    columns = ((true, confusion.counts), (predicted, confusion.counts), (true, right))
    samples, taken, correct = (np.bincount(of, counts, len(pairs)) for of, counts in columns)
    return pairs // confusion.classes, samples, taken, correct


def _means(values: np.ndarray, client: np.ndarray, clients: int) -> np.ndarray:
    return ratios(np.bincount(client, values, clients), np.bincount(client, minlength=clients))
