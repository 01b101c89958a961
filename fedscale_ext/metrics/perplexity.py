"""Perplexity of text: how many symbols a model is undecided between, counted in two ways."""

from dataclasses import dataclass

import numpy as np

from fedscale_ext.core.types import Evaluation


@dataclass(frozen=True)
class Perplexity:
    """``pooled``: exp of the mean loss over all test samples, which is what the word means. ``clients``: the mean over
    clients of exp of each one's mean loss. By Jensen's inequality the second, a mean over parts as FedorAS's public
    code takes it (over batches), is never below the first where the parts are of one size; ``named``: pooled, of the
    global models."""

    pooled: float
    clients: float
    named: dict[str, float]


def perplexity(evaluation: Evaluation) -> Perplexity:
    """Of one evaluation; NaN where nobody was tested, infinite where a loss is beyond what exp can hold."""
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
