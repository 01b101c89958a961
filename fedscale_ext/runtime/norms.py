"""How far training moved a state: the norm that ``max_update_norm`` bounds."""

import torch
from torch import Tensor

from fedscale_ext.runtime.work import State

TOO_FAR = "its change has a norm above max_update_norm"


def change_norms(states: State, start: State) -> Tensor:
    """Norm of each client's change over all floating entries: ``states`` [clients, *shape] less ``start``.

    float64 [clients], on the CPU. Whole numbers (BatchNorm's count of steps) are no part of it.
    """
    parts = [_norms(states[name] - x_0) for name, x_0 in start.items() if x_0.is_floating_point()]
    return torch.linalg.vector_norm(torch.stack(parts), dim=0).cpu()


def norm(change: State, start: State) -> float:
    """Norm of a change of ``start`` over its floating entries."""
    parts = [_norms(change[name][None]) for name, x_0 in start.items() if x_0.is_floating_point()]
    return float(torch.linalg.vector_norm(torch.stack(parts)))


def _norms(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows.flatten(1) if rows.dim() > 1 else rows[:, None], dim=1, dtype=torch.float64)
