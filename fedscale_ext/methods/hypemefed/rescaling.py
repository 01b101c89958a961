"""The size of generated layers: each tensor gets the norm that clients' trained ones have in the same round.

Not in the paper. A generated layer is the input of the next block's hypernetwork (section 4.4), which learned from
only trained layers, and it is part of the mean that clients start from in the next round. With three exits its norm
stays near that of trained layers. With ten, errors add up over nine blocks and over the rounds: generated weights grow
to many times the trained ones, and the mean with them. BatchNorm hides a convolution's size from the loss, so that
clients' training does not bring it back.
"""

from collections.abc import Iterable, Sequence

import torch

from fedscale_ext.methods.hypemefed.pairs import Tensors


def trained_norms(trained: Sequence[tuple[Tensors, float]], names: Iterable[str], start: Tensors) -> dict[str, float]:
    """The norm that each tensor of ``names`` is to have once it is generated.

    Args:
        trained: Clients' states with their weights in the round's mean.
        names: Tensors that hypernetworks generate.
        start: The model at the round's start, for tensors that no client trained in this round.

    Returns:
        By name, the clients' weighted mean of the tensor's Frobenius norm.

    """
    norms = {}
    for name in names:
        held = [(_norm(state[name]), weight) for state, weight in trained if name in state]
        total = sum(weight for _, weight in held)
        norms[name] = sum(norm * weight for norm, weight in held) / total if total else _norm(start[name])
    return norms


def factor_to(norm: float, generated: torch.Tensor) -> float:
    """What a generated tensor is multiplied by to have ``norm``; 1 for a tensor of zeros, which cannot."""
    size = _norm(generated)
    return norm / size if size else 1.0


def _norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64))
