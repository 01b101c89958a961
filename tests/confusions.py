"""Test samples with the classes that they were taken for, drawn at random, and their confusion matrices."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from fedscale_ext.core.auc import Auc
from fedscale_ext.core.confusion import Confusion, of_samples
from fedscale_ext.core.types import Evaluation

Samples = tuple[int, int, list[tuple[int, int, int]]]


@st.composite
def samples_by_client(draw: Any) -> Samples:
    """Clients, classes, and samples as (client, true, predicted)."""
    clients, classes = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    sample = st.tuples(st.integers(0, clients - 1), *[st.integers(0, classes - 1)] * 2)
    return clients, classes, draw(st.lists(sample, max_size=40))


def confusion_of(samples: Samples) -> Confusion:
    clients, classes, rows = samples
    owner, true, predicted = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return of_samples(owner, true, predicted, clients, classes)


def matching(evaluation: Evaluation, classes: int) -> Confusion:
    """Matrices of so many correct answers as an evaluation has; a client's samples are of all classes by turns, and a
    wrong answer is the class after the right one."""
    owner = np.repeat(np.arange(len(evaluation.count)), evaluation.count)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(evaluation.count) - evaluation.count, evaluation.count)
    wrong = number >= np.asarray(evaluation.correct)[owner]
    true = number % classes
    return of_samples(owner, true, (true + wrong) % classes, len(evaluation.count), classes)


def half_areas(evaluation: Evaluation) -> Auc:
    """AUC of one half for each class of an evaluation with matrices, to within a hundredth."""
    assert evaluation.confusion is not None
    client, true = evaluation.confusion.tested_classes
    there = np.isin(np.arange(evaluation.confusion.classes), true)
    pooled, error = (np.where(there, value, np.nan) for value in (0.5, 0.01))
    return Auc(np.full(len(client), 0.5), pooled, error)
