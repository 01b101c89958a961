"""How long a client's change of its model is, and by what it is shortened. Done where clients train."""

from collections.abc import Mapping

import torch
from torch import Tensor

_AT_ONCE = 1 << 19  # entries of all clients whose differences are held at once


def change_norms(states: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> list[float]:
    """L2 norms of the changes from ``start`` to trained ``states`` [clients, *shape].

    The vector is everything that floats: parameters and BatchNorm's statistics alike, because both
    tell of the client's data. Whole numbers (BatchNorm's count of steps) tell only of the plan.
    """
    squares = [_squares(states[name], base) for name, base in start.items() if base.is_floating_point()]
    return torch.stack(squares).sum(0).sqrt().tolist()


def _squares(rows: Tensor, base: Tensor) -> Tensor:
    """Squared norm of each row's difference from ``base``, float64 [rows], in parts that caches hold."""
    if not base.dim():
        return (rows - base).double().square()
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    length = max(1, _AT_ONCE * len(base) // max(1, rows.numel()))
    for part, own in zip(rows.split(length, dim=1), base.split(length), strict=True):
        difference = (part - own).reshape(len(rows), -1)
        total += torch.linalg.vector_norm(difference, dim=1, dtype=torch.float64).square()
    return total


def clip_factor(norm: float, limit: float) -> float:
    """What a change of this norm is multiplied by so that its norm is at most ``limit``; its direction stays."""
    return 1.0 if norm <= limit else limit / norm
