"""Balanced accuracy, macro F1 and figures of classes, against a computation by hand from the samples themselves."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confusions import Samples, confusion_of, samples_by_client
from hypothesis import given, settings

from fedscale_ext.core.confusion import of_samples
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import Evaluation
from fedscale_ext.metrics.by_class import (
    NOT_ENDED,
    TEXT,
    UNTESTED,
    balanced_accuracy,
    by_class,
    class_summary,
    macro_f1,
    why_without_classes,
)
from fedscale_ext.metrics.job_folder.evaluations import write_evaluation
from fedscale_ext.util.tensor_files import read_tensors, write_tensors

Pairs = list[tuple[int, int]]  # true and predicted class of each sample


def by_hand(pairs: Pairs) -> tuple[float, float]:
    """Balanced accuracy and macro F1, from the definitions."""
    recalls, scores = [], []
    for label in {true for true, _ in pairs} | {predicted for _, predicted in pairs}:
        hit = sum(true == predicted == label for true, predicted in pairs)
        missed = sum(true == label != predicted for true, predicted in pairs)
        false = sum(predicted == label != true for true, predicted in pairs)
        if hit + missed:
            recalls.append(hit / (hit + missed))
        precision = hit / (hit + false) if hit + false else 0.0
        recall = hit / (hit + missed) if hit + missed else 0.0
        scores.append(2 * precision * recall / (precision + recall) if precision + recall else 0.0)
    mean = [sum(values) / len(values) if values else math.nan for values in (recalls, scores)]
    return mean[0], mean[1]


@settings(deadline=None, derandomize=True, max_examples=200)
@given(samples=samples_by_client())
def test_figures_are_those_of_the_definitions(samples: Samples) -> None:
    clients, classes, rows = samples
    confusion = confusion_of(samples)
    expected = [by_hand([row[1:] for row in rows if row[0] == client]) for client in range(clients)]
    for of, column in ((balanced_accuracy, 0), (macro_f1, 1)):
        assert of(confusion) == pytest.approx([each[column] for each in expected], rel=1e-12, nan_ok=True)
        pooled = by_hand([row[1:] for row in rows])[column]
        assert of(confusion.over_all()) == pytest.approx([pooled], rel=1e-12, nan_ok=True)
    table = by_class(confusion)
    for label in range(classes):
        true = [row for row in rows if row[1] == label]
        assert table.samples[label] == len(true)
        assert table.predicted[label] == sum(row[2] == label for row in rows)
        share = sum(row[2] == label for row in true) / len(true) if true else math.nan
        assert table.accuracy[label] == pytest.approx(share, nan_ok=True)


def test_a_class_without_test_samples_counts_for_f1_alone_and_only_if_it_was_predicted() -> None:
    confusion = of_samples(np.zeros(4, dtype=np.int64), np.array([0, 0, 0, 1]), np.array([0, 0, 2, 1]), 1, 5)
    assert balanced_accuracy(confusion).tolist() == [pytest.approx((2 / 3 + 1) / 2)]
    assert macro_f1(confusion).tolist() == [pytest.approx((4 / 5 + 1 + 0) / 3)]
    table = by_class(confusion)
    assert math.isnan(table.accuracy[2]) and table.f1[2] == 0 and math.isnan(table.f1[4])


def evaluation(**more: Any) -> Evaluation:
    """Three clients, the second untested; of four classes the last is never there."""
    owner = np.array([0, 0, 0, 2, 2])
    confusion = of_samples(owner, np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 2, 0]), 3, 4)
    count = confusion.samples
    columns = dict.fromkeys(("correct", "top5"), confusion.correct.astype(float))
    return Evaluation(
        7, ("m",) * 3, **columns, loss=np.zeros(3), count=count, named={}, **{"confusion": confusion, **more}
    )


def test_a_summary_has_them_by_client_and_over_all() -> None:
    figures = class_summary(evaluation(), {"data_set": "femnist"})
    balanced, f1 = figures["balanced_accuracy"], figures["macro_f1"]
    assert figures["round"] == 7
    assert balanced["per_client"] == pytest.approx([0.75, math.nan, 0.5], nan_ok=True)
    assert balanced["mean"] == pytest.approx(0.625) and balanced["pooled"] == pytest.approx((0.5 + 1 + 0.5) / 3)
    assert f1["per_client"] == pytest.approx([2 / 3, math.nan, 1 / 3], nan_ok=True)
    assert figures["classes"]["samples"].tolist() == [2, 1, 2, 0]
    assert figures["classes"]["accuracy"] == pytest.approx([0.5, 1, 0.5, math.nan], nan_ok=True)


def test_a_summary_says_why_they_are_absent() -> None:
    femnist = {"data_set": "femnist"}
    untested = replace(evaluation(), count=np.zeros(3, dtype=np.int64))
    assert class_summary(None, femnist) == class_summary(untested, femnist) == {"absent": UNTESTED}
    assert class_summary(evaluation(confusion=None), femnist) == {"absent": NOT_ENDED}
    assert class_summary(evaluation(), {"data_set": "shakespeare"}) == {"absent": TEXT}
    assert why_without_classes(femnist) is None and why_without_classes({"data_set": "my-pictures"}) is None


def test_an_evaluation_on_disk_has_its_matrices(tmp_path: Path) -> None:
    _, stored = write_evaluation(tmp_path, evaluation())
    expected = evaluation().confusion
    assert expected is not None and stored.confusion is not None and stored.confusion.classes == 4
    assert stored.confusion.cells.tolist() == expected.cells.tolist()
    assert stored.confusion.offsets.tolist() == expected.offsets.tolist()
    _, without = write_evaluation(tmp_path / "old", evaluation(confusion=None))
    assert without.confusion is None
    tensors, metadata = read_tensors(stored.path)
    write_tensors(stored.path, tensors, {**metadata, "classes": "1"})
    with pytest.raises(UserError, match="is not an evaluation of this version"):
        _ = stored.confusion
