"""Changes of a model as the largest singular components of its tensors, and the bytes that these take (FedKD).

A tensor [O, ...] counts as a matrix [O, rest]. It is sent as factors U [P, k], S [k] and V^T [k, Q], where they take
fewer bytes than the tensor. Other tensors are sent whole: vectors, numbers, and matrices of nearly full rank.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedscale_ext.method import State

WHOLE = -1  # in place of a rank: the tensor is sent as it is


def matrices(state: State) -> list[str]:
    """Names of the tensors that are sent as factors where it pays: floating, of two axes or more."""
    return [name for name, tensor in state.items() if tensor.is_floating_point() and tensor.dim() > 1]


def rank_for(singular_values: Tensor, energy: float) -> int:
    """Return how many of the largest singular values have a share of at least ``energy`` of the sum of squares.

    Args:
        singular_values: In falling order, float64 [r].
        energy: The share, from 0 to 1.

    Returns:
        The number; 0 if all of them are zero.

    """
    reached = singular_values.square().cumsum(0)
    if not len(reached) or reached[-1] == 0:
        return 0
    return min(int((reached < energy * reached[-1]).sum()) + 1, len(reached))


def compressed(before: State, after: State, energy: float) -> tuple[State, Tensor]:
    """Compress the change of a model.

    Args:
        before: The model that both sides have.
        after: The model whose change is sent.
        energy: Share of each matrix's squared singular values that is kept.

    Returns:
        The model that the receiver has then, and the rank of each of :func:`matrices`, int32.

    Raises:
        FloatingPointError: A tensor is not finite.

    """
    result, ranks = dict(after), []
    for name in matrices(before):
        start = before[name].detach().cpu()
        change = (after[name].detach().cpu().double() - start.double()).flatten(1)
        if not bool(torch.isfinite(change).all()):
            raise FloatingPointError("the change of its shared model is not finite")
        u, s, vt = torch.linalg.svd(change, full_matrices=False)
        rank = rank_for(s, energy)
        if rank * _entries_per_rank(change.shape) >= change.numel():
            ranks.append(WHOLE)
            continue
        ranks.append(rank)
        # the receiver multiplies what it got, factors of the tensor's own type
        u, s, vt = (part.to(start.dtype).double() for part in (u[:, :rank], s[:rank], vt[:rank]))
        product = ((u * s) @ vt).view(start.shape)
        result[name] = (start.double() + product).to(start.dtype).to(after[name].device)
    return result, torch.tensor(ranks, dtype=torch.int32)


def num_bytes(state: State, ranks: Tensor) -> int:
    """Return the bytes of a message: ranks, factors, and the tensors that are sent whole.

    Args:
        state: Tensors like the model's.
        ranks: The rank of each of its :func:`matrices`, int32, or :data:`WHOLE`.

    """
    total = sum(tensor.nbytes for tensor in state.values()) + ranks.nbytes
    for name, rank in zip(matrices(state), ranks.tolist(), strict=True):
        if rank != WHOLE:
            tensor = state[name]
            total += rank * _entries_per_rank(tensor.flatten(1).shape) * tensor.itemsize - tensor.nbytes
    return total


def largest_ranks(state: State) -> Tensor:
    """Return the largest rank that each of the :func:`matrices` can be sent with, int32."""
    return torch.tensor([min(state[name].flatten(1).shape) for name in matrices(state)], dtype=torch.int32)


def _entries_per_rank(shape: Sequence[int]) -> int:
    """Entries of U, S and V^T for each singular value."""
    rows, columns = shape
    return rows + columns + 1
