"""The server's training of one hypernetwork on a round's samples (Shin et al., SenSys 2024, sections 4.4 and 5.1)."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.adam import adam

from fedscale_ext.methods.hypemefed.hypernetwork import Moments, Network
from fedscale_ext.methods.hypemefed.losses import Target


def train(
    network: Network,
    samples: Sequence[Any],
    orders: Sequence[Sequence[int]],
    lr: float = 5e-4,
    *,
    keep_moments: bool = False,
    precision: torch.dtype | None = None,
) -> list[float]:
    """Train a hypernetwork by Adam over the samples, batch 1 (section 5.1).

    Values go on from where the last round left them (section 4.4). Adam starts anew in each round, as in the public
    code, unless ``keep_moments``. Without samples nothing changes.

    Args:
        network: The hypernetwork, which changes in place.
        samples: Inputs and targets, as its ``gradients`` takes them.
        orders: Indices of the samples in each epoch, in the order in which they are learned.
        lr: Learning rate of Adam.
        keep_moments: Whether Adam's moments last from round to round.
        precision: Type of matrix products; values and moments keep theirs.

    Returns:
        The mean loss of each epoch; empty without samples.

    Raises:
        FloatingPointError: Training diverged. The network is then as it was, without moments.

    """
    if not samples:
        return []
    values, before = network.values, network.values.clone()
    moments = network.moments if keep_moments else None
    if moments is None:
        moments = Moments(torch.zeros_like(values), torch.zeros_like(values), values.new_zeros(()))
    precision = precision or values.dtype
    rounded = precision != values.dtype
    working = values.to(precision)
    gradient = torch.empty_like(working)
    exact = torch.empty_like(values) if rounded else gradient
    if rounded:
        samples = [_cast(sample, precision) for sample in samples]
    losses = []
    for order in orders:
        total = torch.zeros((), dtype=torch.float64, device=values.device)
        for index in order:
            total += network.gradients(samples[index], working, gradient)
            if rounded:
                exact.copy_(gradient)
            _adam(values, exact, moments, lr)
            if rounded:
                working.copy_(values)
        losses.append(float(total) / len(samples))
    network.moments = moments if keep_moments else None
    if not (math.isfinite(losses[-1]) and bool(values.isfinite().all())):
        values.copy_(before)
        network.moments = None
        raise FloatingPointError(f"the hypernetwork has diverged: the loss of its last epoch is {losses[-1]}")
    network.rounds += 1
    return losses


def _adam(values: torch.Tensor, gradient: torch.Tensor, moments: Moments, lr: float) -> None:
    # the function, as the class imports a compiler, which takes longer than a round's training
    adam([values], [gradient], [moments.first], [moments.second], [], [moments.steps], fused=True, amsgrad=False,
         beta1=0.9, beta2=0.999, lr=lr, weight_decay=0.0, eps=1e-8, maximize=False)  # fmt: skip


def _cast(sample: Any, precision: torch.dtype) -> Any:
    """Floating-point tensors of a sample in ``precision``; a target's norm stays."""
    if isinstance(sample, Target):
        return Target(sample.matrix.to(precision), sample.square)
    if isinstance(sample, torch.Tensor):
        return sample.to(precision)
    return tuple(_cast(part, precision) for part in sample)
