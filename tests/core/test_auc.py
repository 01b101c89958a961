"""Areas under ROC curves equal those of a count of all pairs, and scikit-learn's where it is installed."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.auc import (
    AucSums,
    auc_sums,
    bins_of,
    combined,
    from_tensors,
    histograms_of,
    log_odds,
    pooled,
    to_tensors,
)

Scored = tuple[int, np.ndarray, np.ndarray, np.ndarray]


@st.composite
def scored(draw: Any) -> Scored:
    """Clients, and owner, label and scores of their samples, many of which are equal."""
    clients, classes = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    samples = draw(st.integers(0, 25))
    score = st.sampled_from([-math.inf, -3.0, -1.0, 0.0, 0.25, 2.0, math.inf]) | st.floats(-30, 30)

    def column(values: Any) -> list[Any]:
        return draw(st.lists(values, min_size=samples, max_size=samples))

    owner, labels = (np.array(column(st.integers(0, top - 1)), dtype=np.int64) for top in (clients, classes))
    scores = np.array(column(st.lists(score, min_size=classes, max_size=classes))).reshape(samples, classes)
    return clients, owner, labels, scores


def counted(positives: np.ndarray, others: np.ndarray) -> float:
    """The definition, over all pairs."""
    wins = (positives[:, None] > others).sum() + (positives[:, None] == others).sum() / 2
    return float(wins) / (len(positives) * len(others)) if len(positives) and len(others) else math.nan


@settings(max_examples=50)
@given(data=scored())
def test_areas_of_clients_are_those_of_all_pairs(data: Scored) -> None:
    clients, owner, labels, scores = data
    expected = []
    for client in range(clients):
        mine, y = scores[owner == client], labels[owner == client]
        expected += [counted(mine[y == label, label], mine[y != label, label]) for label in sorted(set(y.tolist()))]
    assert auc_sums(owner, labels, scores, clients).areas == pytest.approx(expected, abs=1e-15, nan_ok=True)


@settings(max_examples=50)
@given(data=scored())
def test_pooled_areas_are_those_of_all_pairs_within_the_bound(data: Scored) -> None:
    clients, owner, labels, scores = data
    sums = auc_sums(owner, labels, scores, clients)
    areas, errors = pooled(histograms_of([sums], scores.shape[1]))
    for label, (area, error) in enumerate(zip(areas, errors, strict=True)):
        exact = counted(scores[labels == label, label], scores[labels != label, label])
        assert math.isnan(area) == math.isnan(exact) == math.isnan(error)
        assert math.isnan(area) or abs(area - exact) <= error + 1e-15


def test_the_bound_is_small_for_scores_that_spread() -> None:
    draws = np.random.default_rng(1)
    labels = draws.integers(0, 3, 5000)
    logits = torch.from_numpy(2 * draws.standard_normal((5000, 3)) + 2 * np.eye(3)[labels])
    scores = log_odds(logits)
    sums = auc_sums(np.zeros(5000, dtype=np.int64), labels, scores, 1)
    areas, errors = pooled(histograms_of([sums], 3))
    assert (errors < 1e-4).all() and (errors > 0).all()
    assert (np.abs(areas - sums.areas) <= errors).all()


@settings(max_examples=50)
@given(data=scored(), cut=st.integers(0, 4))
def test_parts_add_up(data: Scored, cut: int) -> None:
    clients, owner, labels, scores = data
    cut = min(cut, clients)
    order = np.argsort(owner, kind="stable")
    owner, labels, scores = owner[order], labels[order], scores[order]
    first = owner < cut
    parts = [
        auc_sums(owner[first], labels[first], scores[first], cut),
        auc_sums(owner[~first] - cut, labels[~first], scores[~first], clients - cut),
    ]
    whole, both = auc_sums(owner, labels, scores, clients), combined(parts)
    assert np.array_equal(whole.areas, both.areas, equal_nan=True)
    assert np.array_equal(whole.cells, both.cells) and np.array_equal(whole.counts, both.counts)
    classes = scores.shape[1]
    assert np.array_equal(histograms_of(parts, classes), histograms_of([whole], classes))
    assert histograms_of([whole], classes).sum() == scores.size


def test_they_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    draws = np.random.default_rng(5)
    labels = np.concatenate([np.arange(4), draws.integers(0, 4, 196)])
    logits = torch.from_numpy(draws.standard_normal((200, 4)).round(1) + np.eye(4)[labels])
    sums = auc_sums(np.zeros(200, dtype=np.int64), labels, log_odds(logits), 1)
    # by probabilities: float64 keeps all of these apart
    macro = metrics.roc_auc_score(labels, logits.softmax(dim=1).numpy(), multi_class="ovr", average="macro")
    assert sums.areas.mean() == pytest.approx(macro, abs=1e-12)


@given(
    logits=st.lists(st.lists(st.floats(-20, 20), min_size=3, max_size=3), min_size=1, max_size=6),
)
def test_log_odds_are_those_of_the_probability(logits: list[list[float]]) -> None:
    values = torch.tensor(logits, dtype=torch.float64)
    p = values.softmax(dim=1)
    rest = torch.stack([p[:, [i for i in range(3) if i != label]].sum(1) for label in range(3)], dim=1)
    assert log_odds(values) == pytest.approx((p.log() - rest.log()).numpy(), abs=1e-9)


def test_log_odds_tell_sure_answers_apart_and_have_no_nan() -> None:
    sure = log_odds(torch.tensor([[80.0, 0.0], [90.0, 0.0]]))
    assert sure.tolist() == [[80.0, -80.0], [90.0, -90.0]]
    nan, inf = math.nan, math.inf
    assert log_odds(torch.tensor([[nan, 1.0], [inf, 0.0], [-inf, 0.0], [-inf, -inf]])).tolist() == [
        [-inf, -inf], [inf, -inf], [-inf, inf], [-inf, -inf]
    ]  # fmt: skip
    assert log_odds(torch.tensor([[1.0], [2.0]])).tolist() == [[inf], [inf]]


@settings(max_examples=50)
@given(data=scored())
def test_tensors_hold_all(data: Scored) -> None:
    clients, owner, labels, scores = data
    sums = auc_sums(owner, labels, scores, clients)
    read = from_tensors(to_tensors(sums), scores.shape[1])
    for name, expected in vars(sums).items():
        assert np.array_equal(expected, getattr(read, name), equal_nan=name == "areas")


def test_tensors_that_cannot_be_are_refused() -> None:
    good = to_tensors(AucSums(np.array([0.5]), np.array([3, 70000]), np.array([1, 2])))
    bad = {
        "nothing else": {**good, "more": good["areas"]},
        "column of float64": {**good, "areas": torch.zeros(2, dtype=torch.float32)},
        "from 0 to 1": {**good, "areas": torch.tensor([1.5], dtype=torch.float64)},
        "two columns": {**good, "counts": good["counts"][:1]},
        "columns of whole": {**good, "counts": good["counts"].double()},
        "impossible": {**good, "counts": good["counts"] - 1},
        "3 classes with impossible": {**good, "cells": good["cells"].flip(0)},
        "with impossible cells": {**good, "cells": good["cells"] + 6 * bins_of(3)},
    }
    from_tensors(good, 3)
    for why, tensors in bad.items():
        with pytest.raises(ValueError, match=why):
            from_tensors(tensors, 3)


def test_bins_fit_into_memory() -> None:
    assert [bins_of(classes) for classes in (2, 10, 62, 596, 10000)] == [65536, 65536, 33825, 3518, 1024]
