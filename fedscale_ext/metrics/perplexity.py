"""Perplexity of text: how many symbols a model is undecided between, counted in two ways."""

from dataclasses import dataclass

import numpy as np

from fedscale_ext.core.types import Evaluation


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of one evaluation, counted in two ways.

    ``pooled`` is exp of the mean loss over all test samples, the usual definition. ``clients`` is the mean over clients
    of exp of each one's mean loss, a mean over parts as in FedorAS's public code (over batches). By Jensen's
    inequality, ``clients`` is never below ``pooled`` where the parts are of one size. ``named`` is pooled, of the
    global models.
    """

    pooled: float
    clients: float
    named: dict[str, float]


def perplexity(evaluation: Evaluation) -> Perplexity:
    """Perplexity of one evaluation; NaN where no client was tested, infinite where exp of a loss overflows."""
    count = np.asarray(evaluation.count)
    tested = count > 0
    losses = np.asarray(evaluation.loss)[tested]
    named = np.array([loss for _, loss in evaluation.named.values()])
    with np.errstate(over="ignore"):
        each = dict(zip(evaluation.named, np.exp(named).tolist(), strict=True))
        if not tested.any():
            return Perplexity(np.nan, np.nan, each)
        pooled, by_client = np.exp(losses.sum() / count[tested].sum()), np.exp(losses / count[tested])
    return Perplexity(float(pooled), float(by_client.mean()), each)
