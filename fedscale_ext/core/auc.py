"""Area under the ROC curve of each class against all others, from the scores of test samples.

The area is the share of pairs of a sample of the class and one of another class in which the first has the higher
score; equal scores count half. A sample's score for a class is the log-odds of its softmax probability: they rank
samples as the probabilities do, and stay apart where these round to 1.

- By client and class it is exact: executors have all scores of a client, and rank them.
- Over all clients, scores are counted in bins (:func:`bins_of`): the aggregator cannot hold each sample's score of each
  class. Two samples in one bin count half, which is wrong by half a pair at most: the area is off by no more than
  half the share of pairs that fall into one bin. Each area comes with that bound. Scores that hardly differ, as of a
  model that has hardly trained, share bins.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.confusion import smallest
from fedscale_ext.core.missing_values import ratios

_MOST_BINS, _LEAST_BINS, _CELLS = 1 << 16, 1 << 10, 1 << 21
_REACH = 10.0  # bins are of equal width in asinh(log-odds), from -10 to 10: log-odds of up to 11,013 either way
_SUMS = ("areas", "cells", "counts")
_WHOLE = (torch.uint8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class AucSums:
    """What executors send of their clients' scores.

    Attributes:
        areas: float64 [pairs], area of each class among each client's test samples; by client, then by class. NaN for a
            client whose samples are all of one class.
        cells: int64 [cells], ascending: ``(own * classes + class) * bins + bin`` of the scores for a class, where
            ``own`` is 1 for samples of this class, else 0.
        counts: int64 [cells], samples of each cell, at least 1.

    """

    areas: np.ndarray
    cells: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class Auc:
    """Areas by client and class, and by class over all clients.

    Attributes:
        areas: float64 [pairs], as in :class:`AucSums`. The pairs are those of ``Confusion.tested_classes``.
        pooled: float64 [classes], area over the test samples of all clients; NaN without samples of the class or of
            others.
        error: float64 [classes], most that ``pooled`` can be off because of the bins; NaN where it is.

    """

    areas: np.ndarray
    pooled: np.ndarray
    error: np.ndarray


def bins_of(classes: int) -> int:
    """Return the number of bins of a class: up to 65,536, fewer where many classes would take much memory."""
    return max(_LEAST_BINS, min(_MOST_BINS, _CELLS // classes))


def log_odds(logits: Tensor) -> np.ndarray:
    """Return log(p / (1 - p)) of the softmax of logits [samples, classes], float64 [samples, classes].

    What is not a number, as of a model that diverged, is minus infinity: such samples rank equal, below all others.
    """
    values = logits.double()
    log_p = values.log_softmax(dim=1)
    odds = log_p - torch.log1p(-log_p.exp())
    # of the likeliest class, 1 - p may round to 0: its log-odds are its logit less the others' log-sum-exp
    top = values.argmax(dim=1, keepdim=True)
    others = values.scatter(1, top, -torch.inf).logsumexp(dim=1, keepdim=True)
    odds = odds.scatter(1, top, values.gather(1, top) - others)
    return torch.where(odds.isnan(), -torch.inf, odds).numpy()


def auc_sums(owner: np.ndarray, labels: np.ndarray, scores: np.ndarray, clients: int) -> AucSums:
    """Rank and count the scores of some clients.

    Args:
        owner: int64 [samples], index of each sample's client, from 0.
        labels: int64 [samples], its class.
        scores: float64 [samples, classes], without NaN.
        clients: Number of clients.

    """
    cells, counts = np.unique(_cells(labels, scores), return_counts=True)
    return AucSums(_areas(owner, labels, scores, clients), cells, counts.astype(np.int64))


def combined(parts: Sequence[AucSums]) -> AucSums:
    """Put the clients of parts of equal classes one after another."""
    areas, cells, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in _SUMS)
    order = np.argsort(cells, kind="stable")
    cells, starts = np.unique(cells[order], return_index=True)
    return AucSums(areas, cells, np.add.reduceat(counts[order], starts) if len(starts) else counts)


def histograms_of(parts: Iterable[AucSums], classes: int) -> np.ndarray:
    """Return the counts of all parts, int64 [2, classes, bins]: samples of other classes, and of the class itself."""
    histograms = np.zeros(2 * classes * bins_of(classes), dtype=np.int64)
    for part in parts:
        histograms[part.cells] += part.counts
    return histograms.reshape(2, classes, -1)


def pooled(histograms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the area of each class and the most that it is off, float64 [classes] each, of :func:`histograms_of`."""
    negatives, positives = histograms
    pairs = negatives.sum(axis=1) * positives.sum(axis=1)
    below = np.cumsum(negatives, axis=1) - negatives
    alike = (positives * negatives).sum(axis=1)
    return ratios(2 * (positives * below).sum(axis=1) + alike, 2 * pairs), ratios(alike, 2 * pairs)


def to_tensors(sums: AucSums) -> dict[str, Tensor]:
    """Return sums as tensors, whole numbers in the smallest type that holds them."""
    areas, *whole = (getattr(sums, name) for name in _SUMS)
    return dict(zip(_SUMS, map(torch.from_numpy, (areas, *map(smallest, whole))), strict=True))


def from_tensors(tensors: Mapping[str, Tensor], classes: int) -> AucSums:
    """Return the sums of :func:`to_tensors`; ValueError, which says what is wrong, for anything else."""
    if tensors.keys() != set(_SUMS):
        raise ValueError(f"sums of AUC are {', '.join(_SUMS)} and nothing else")
    areas, *whole = (tensors[name] for name in _SUMS)
    if areas.dim() != 1 or areas.dtype != torch.float64:
        raise ValueError("areas of AUC are a column of float64")
    if any(tensor.dim() != 1 or tensor.dtype not in _WHOLE for tensor in whole) or len(whole[0]) != len(whole[1]):
        raise ValueError("counts of AUC are two columns of whole numbers")
    values, cells, counts = areas.numpy(), *(tensor.numpy().astype(np.int64) for tensor in whole)
    if not (np.isnan(values) | ((values >= 0) & (values <= 1))).all():
        raise ValueError("areas of AUC are from 0 to 1")
    most = 2 * classes * bins_of(classes)
    if ((cells < 0) | (cells >= most)).any() or (np.diff(cells) <= 0).any() or (counts < 1).any():
        raise ValueError(f"counts of AUC of {classes} classes with impossible cells")
    return AucSums(values, cells, counts)


def _areas(owner: np.ndarray, labels: np.ndarray, scores: np.ndarray, clients: int) -> np.ndarray:
    """Mann-Whitney's count, with whole numbers up to the last division."""
    there = np.zeros((clients, scores.shape[1]), dtype=bool)
    there[owner, labels] = True
    numbers = np.cumsum(there).reshape(there.shape) - 1  # of a pair of client and class, where there is one
    sample, of_class = np.nonzero(there[owner])
    pair, score = numbers[owner[sample], of_class], scores[sample, of_class]
    order = np.lexsort((score, pair))
    pair, score, positive = pair[order], score[order], (labels[sample] == of_class)[order]
    first = np.ones(len(pair), dtype=bool)  # of a run of equal scores of one pair
    first[1:] = (pair[1:] != pair[:-1]) | (score[1:] != score[:-1])
    starts = np.flatnonzero(first)
    if not len(starts):
        return np.zeros(0)
    positives, negatives = (np.add.reduceat(each.astype(np.int64), starts) for each in (positive, ~positive))
    pair = pair[starts]
    all_positives, all_negatives = (_sums(pair, values) for values in (positives, negatives))
    before = np.cumsum(negatives) - negatives
    before -= (np.cumsum(all_negatives) - all_negatives)[pair]
    return ratios(_sums(pair, positives * (2 * before + negatives)), 2 * all_positives * all_negatives)


def _cells(labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the cell of each score, int64 [samples, classes]."""
    classes = scores.shape[1]
    bins = bins_of(classes)
    position = (np.arcsinh(np.clip(scores, -1e9, 1e9)) / _REACH + 1) * (bins / 2)
    index = np.clip(np.floor(position), 0, bins - 1).astype(np.int64)
    positive = labels[:, None] == np.arange(classes)
    return (positive * classes + np.arange(classes)) * bins + index


def _sums(of: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Whole numbers [n] added up by ``of``, which ascends from 0 without gaps."""
    return np.add.reduceat(values, np.flatnonzero(np.diff(of, prepend=-1)))
