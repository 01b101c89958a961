"""How long a client's change of its model is, and by what it is shortened. Done where clients train."""

from collections.abc import Mapping

import torch
from torch import Tensor

_AT_ONCE = 1 << 22  # entries of all clients whose differences are held at once


def change_norms(states: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> list[float]:
    """L2 norms of the changes from ``start`` to trained ``states`` [clients, *shape].

    The vector is everything that floats: parameters and BatchNorm's statistics alike, because both
    tell of the client's data. Whole numbers (BatchNorm's count of steps) tell only of the plan.
    """
    squares = torch.zeros(len(next(iter(states.values()))), dtype=torch.float64)
    for name, base in start.items():
        if base.is_floating_point():
            rows = states[name].split(max(1, _AT_ONCE // max(1, base.numel())))
            differences = ((part - base).reshape(len(part), -1) for part in rows)
            norms = [torch.linalg.vector_norm(part, dim=1, dtype=torch.float64) for part in differences]
            squares += torch.cat(norms).square().cpu()
    return squares.sqrt().tolist()


def clip_factor(norm: float, limit: float) -> float:
    """What a change of this norm is multiplied by so that its norm is at most ``limit``; its direction stays."""
    return 1.0 if norm <= limit else limit / norm
