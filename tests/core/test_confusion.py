"""Confusion matrices without their zeros equal those that are counted sample by sample."""

from typing import Any

import numpy as np
import pytest
import torch
from confusions import Samples, confusion_of, samples_by_client
from hypothesis import given, settings

from fedscale_ext.core.confusion import (
    Confusion,
    concatenated,
    from_tensors,
    gathered,
    of_samples,
    smallest,
    to_tensors,
)


def dense(confusion: Confusion) -> np.ndarray:
    """int64 [clients, classes, classes]."""
    matrix = np.zeros((confusion.num_clients, confusion.classes, confusion.classes), dtype=np.int64)
    for client in range(confusion.num_clients):
        for at in range(confusion.offsets[client], confusion.offsets[client + 1]):
            matrix[client, confusion.true[at], confusion.predicted[at]] += confusion.counts[at]
    return matrix


def counted(samples: Samples) -> np.ndarray:
    clients, classes, rows = samples
    matrix = np.zeros((clients, classes, classes), dtype=np.int64)
    for client, true, predicted in rows:
        matrix[client, true, predicted] += 1
    return matrix


@settings(deadline=None, derandomize=True, max_examples=150)
@given(samples=samples_by_client())
def test_cells_are_those_counted_one_by_one(samples: Samples) -> None:
    confusion, expected = confusion_of(samples), counted(samples)
    assert np.array_equal(dense(confusion), expected)
    assert confusion.samples.tolist() == expected.sum((1, 2)).tolist()
    assert confusion.correct.tolist() == np.trace(expected, axis1=1, axis2=2).tolist()
    assert len(confusion.cells) == np.count_nonzero(expected)
    assert np.array_equal(dense(confusion.over_all())[0], expected.sum(0))
    order = list(reversed(range(samples[0])))
    assert np.array_equal(dense(confusion.of(order)), expected[order])
    assert np.array_equal(dense(concatenated([confusion, confusion])), np.concatenate([expected, expected]))
    assert np.array_equal(
        dense(gathered(confusion.owner[::-1], confusion.cells[::-1], confusion.counts[::-1], *samples[:2])), expected
    )


@settings(deadline=None, derandomize=True, max_examples=100)
@given(samples=samples_by_client())
def test_tensors_come_back_as_they_went(samples: Samples) -> None:
    confusion = confusion_of(samples)
    again = from_tensors(to_tensors(confusion), confusion.classes)
    for name in ("offsets", "cells", "counts"):
        assert getattr(again, name).tolist() == getattr(confusion, name).tolist()


def test_tensors_take_three_bytes_a_cell_of_few_classes() -> None:
    rng = np.random.default_rng(1)
    confusion = of_samples(np.repeat(np.arange(10), 50), *rng.integers(0, 100, (2, 500)), 10, 100)
    assert sum(tensor.nbytes for tensor in to_tensors(confusion).values()) <= 3 * 500 + 10


def test_many_classes_of_many_clients_do_not_overflow() -> None:
    last = 999_999
    confusion = of_samples(np.array([499_999]), np.array([last]), np.array([last]), 500_000, last + 1)
    assert (confusion.true.tolist(), confusion.predicted.tolist()) == ([last], [last])
    assert from_tensors(to_tensors(confusion), last + 1).cells.tolist() == confusion.cells.tolist()


GOOD = {"sizes": [2, 0, 1], "cells": [0, 3, 0], "counts": [1, 1, 2]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"more": [1]}, "nothing else"),
        ({"sizes": [2, 0, 2]}, "add up"),
        ({"sizes": [4, -1, 0]}, "add up"),
        ({"counts": [1, 1]}, "add up"),
        ({"counts": [1, 0, 2]}, "impossible"),
        ({"cells": [0, 4, 0]}, "impossible"),
        ({"cells": [-1, 3, 0]}, "impossible"),
        ({"cells": [3, 3, 0]}, "ascend"),
        ({"cells": [3, 0, 0]}, "ascend"),
        ({"cells": [[0, 3, 0]]}, "columns"),
        ({"counts": [1.0, 1.0, 2.0]}, "columns"),
    ],
)
def test_other_tensors_are_refused(change: dict[str, Any], why: str) -> None:
    good = {name: torch.tensor(values) for name, values in GOOD.items()}
    assert from_tensors(good, 2).samples.tolist() == [2, 0, 2]
    with pytest.raises(ValueError, match=why):
        from_tensors(good | {name: torch.tensor(values) for name, values in change.items()}, 2)


@pytest.mark.parametrize(("most", "dtype"), [(255, "uint8"), (256, "int16"), (32_768, "int32"), (2**31, "int64")])
def test_counts_are_of_the_smallest_type(most: int, dtype: str) -> None:
    assert smallest(np.array([0, most])).dtype == dtype and smallest(np.array([0, most])).tolist() == [0, most]
