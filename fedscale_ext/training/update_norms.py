"""How far training moved a state: the norm that ``max_update_norm`` bounds."""

import torch
from torch import Tensor

from fedscale_ext.core.types import State
from fedscale_ext.training.factored import FactoredWeights
from fedscale_ext.training.resident import CohortState

_AT_ONCE = 1 << 19  # entries of all clients whose differences are held at once
TOO_FAR = "its change has a norm above max_update_norm"


def change_norms(states: CohortState, start: State) -> Tensor:
    """Norm of each client's change over all floating entries: ``states`` [clients, *shape] less ``start``.

    float64 [clients], on the CPU. Whole numbers (BatchNorm's count of steps) are no part of it. TypeError for
    weights that are kept as factors.
    """
    squares = [_squares(states[name], x_0) for name, x_0 in start.items() if x_0.is_floating_point()]
    return torch.stack(squares).sum(0).sqrt().cpu()


def _squares(rows: Tensor | FactoredWeights, base: Tensor) -> Tensor:
    """Squared norm of each row's difference from ``base``, float64 [rows], in parts that caches hold."""
    if isinstance(rows, FactoredWeights):
        raise TypeError("weights are not kept as factors where a norm is asked for")
    if not base.dim():
        return (rows - base).double().square()
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    length = max(1, _AT_ONCE * len(base) // max(1, rows.numel()))
    for part, own in zip(rows.split(length, dim=1), base.split(length), strict=True):
        difference = (part - own).flatten(1)
        total += torch.linalg.vector_norm(difference, dim=1, dtype=torch.float64).square()
    return total


def norm(change: State, start: State) -> float:
    """Norm of a change of ``start`` over its floating entries."""
    names = [name for name, x_0 in start.items() if x_0.is_floating_point()]
    parts = [torch.linalg.vector_norm(change[name], dtype=torch.float64) for name in names]
    return float(torch.linalg.vector_norm(torch.stack(parts)))
