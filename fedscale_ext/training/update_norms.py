"""Norms of the clients' changes, which ``max_update_norm`` bounds."""

import torch
from torch import Tensor

from fedscale_ext.core.types import State
from fedscale_ext.training.factored import FactoredWeights
from fedscale_ext.training.resident import CohortState

_AT_ONCE = 1 << 19  # entries of all clients whose differences are in memory at once
TOO_FAR = "its change has a norm above max_update_norm"


def change_norms(states: CohortState, start: State) -> Tensor:
    """Return the norm of each client's change over all floating entries.

    Integer tensors (BatchNorm's count of steps) are left out.

    Args:
        states: The trained states, [clients, *shape].
        start: The state from which they trained.

    Returns:
        float64 [clients], on the CPU.

    Raises:
        TypeError: If weights are stored as factors.

    """
    squares = [_squares(states[name], x_0) for name, x_0 in start.items() if x_0.is_floating_point()]
    return torch.stack(squares).sum(0).sqrt().cpu()


def _squares(rows: Tensor | FactoredWeights, base: Tensor) -> Tensor:
    """Return each row's squared distance from ``base``, float64 [rows], computed in parts that fit the cache."""
    if isinstance(rows, FactoredWeights):
        raise TypeError("weights are not kept as factors where a norm is asked for")
    if not base.dim():
        return (rows - base).double().square()
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    length = max(1, _AT_ONCE * len(base) // max(1, rows.numel()))
    for part, base_part in zip(rows.split(length, dim=1), base.split(length), strict=True):
        difference = (part - base_part).flatten(1)
        total += torch.linalg.vector_norm(difference, dim=1, dtype=torch.float64).square()
    return total


def norm(change: State, start: State) -> float:
    """Return the norm of a change of ``start`` over its floating entries."""
    names = [name for name, x_0 in start.items() if x_0.is_floating_point()]
    parts = [torch.linalg.vector_norm(change[name], dtype=torch.float64) for name in names]
    return float(torch.linalg.vector_norm(torch.stack(parts)))
