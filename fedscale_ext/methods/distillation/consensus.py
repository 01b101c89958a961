"""What several models say together of public samples: their logits [models, n, classes] made into one answer.

Sums run over the models in their order, in float64.
"""

import torch
from torch import Tensor

_LEAST = 1e-12  # entropy of a model that is sure


def mean_logits(logits: Tensor) -> Tensor:
    """[n, classes]: the mean (FedMD's consensus, FedDF's AVGLOGITS)."""
    return logits.double().mean(0).to(logits.dtype)


def entropy_reduced(logits: Tensor, temperature: float) -> Tensor:
    """[n, classes]: the models' mean probabilities, sharpened by a softmax at ``temperature`` (DS-FL's ERA)."""
    mean = logits.double().softmax(-1).mean(0)
    return (mean / temperature).softmax(-1).to(logits.dtype)


def weighted(logits: Tensor, weights: Tensor) -> Tensor:
    """[n, classes]: the mean with ``weights`` [models, n]; zero where all weights are zero."""
    total = weights.double().sum(0)
    shares = torch.where(total > 0, weights.double() / total.clamp(min=torch.finfo(torch.float64).tiny), 0.0)
    return (logits.double() * shares[..., None]).sum(0).to(logits.dtype)


def entropies(logits: Tensor) -> Tensor:
    """[models, n]: entropy in nats of each model's probabilities."""
    log_p = logits.double().log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


def entropy_weights(logits: Tensor, counts: Tensor) -> Tensor:
    """[models, n]: one over the entropy for those that count (bool [models, n]), and zero for the others (FedGEMS)."""
    return torch.where(counts, 1.0 / entropies(logits).clamp(min=_LEAST), 0.0)


def variance_weights(logits: Tensor) -> Tensor:
    """[models, n]: variance of each model's logits over the classes, which is large where it is sure (Fed-ET)."""
    return logits.double().var(-1, unbiased=False)


def right(logits: Tensor, labels: Tensor) -> Tensor:
    """bool [..., n]: whether the largest logit [..., n, classes] is that of the label [n]."""
    return logits.argmax(-1) == labels
