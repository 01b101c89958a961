"""Small trainings of the server on what clients sent: a head, prototypes."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedscale_ext.method import State


def trained(
    start: State,
    rows: int,
    loss: Callable[[State, Tensor], Tensor],
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    generator: torch.Generator,
) -> State:
    """Train tensors by plain SGD.

    Args:
        start: The tensors before.
        rows: Number of samples.
        loss: Mean loss from the tensors and the rows int64 [B] of a batch.
        epochs: Passes over the samples.
        batch_size: Samples of a step.
        lr: Learning rate.
        generator: Shuffles the samples of each epoch.

    Returns:
        The tensors after training.

    Raises:
        FloatingPointError: The tensors are not finite.

    """
    state = {name: tensor.detach().clone().requires_grad_() for name, tensor in start.items()}
    for _ in range(epochs):
        for batch in torch.randperm(rows, generator=generator).split(batch_size):
            gradients = torch.autograd.grad(loss(state, batch), list(state.values()))
            with torch.no_grad():
                for tensor, gradient in zip(state.values(), gradients, strict=True):
                    tensor.sub_(gradient, alpha=lr)
    result = {name: tensor.detach() for name, tensor in state.items()}
    if not all(bool(torch.isfinite(tensor).all()) for tensor in result.values()):
        raise FloatingPointError("the server's training diverged")
    return result
