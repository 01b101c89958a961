"""A convolution as a matrix and its largest singular components (Shin et al., SenSys 2024, section 4.3).

Where the public code departs from the text, the text counts: it reshapes [O, I, k, k] without a permutation,
which mixes taps with channels, and its rank is 1 instead of k. The text leaves the singular vectors' signs open,
so that the same weights have 2^k inputs; here the largest entry of each left vector is positive.
"""

from collections.abc import Iterable, Sequence

import torch
from torch.nn import functional

from fedscale_ext.core.errors import UserError

Factors = tuple[torch.Tensor, torch.Tensor]  # P [rows, k] and Q [k, columns]; P Q is the matrix, or near it

# below this share of the largest one, a component's square drowns in the rounding of the others' in float32
_SMALLEST = 0.03


def to_matrix(weight: torch.Tensor) -> torch.Tensor:
    """A [I kh, O kw] of a convolution [O, I, kh, kw] (section 4.3), as a copy.

    A kernel along one axis ([O, I, k] or [O, I, 1, k]), of which the text says nothing, has its taps among the inputs:
    A [I k, O] is what a window is multiplied by, and has the larger rank. A linear layer [O, I] counts as 1 x 1.
    """
    outputs, inputs, height, width = _four(weight.shape)
    taps = weight.reshape(outputs, inputs, height, width).permute(1, 2, 0, 3)
    return taps.reshape(inputs * height, outputs * width).contiguous()


def to_weight(matrix: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The inverse of :func:`to_matrix`: the layer's weight of the given shape, contiguous."""
    outputs, inputs, height, width = _four(shape)
    taps = matrix.reshape(inputs, height, outputs, width).permute(2, 0, 1, 3)
    return taps.reshape(tuple(shape)).contiguous()


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """(I kh, O kw) of a layer's weight."""
    outputs, inputs, height, width = _four(shape)
    return inputs * height, outputs * width


def rank(shape: Sequence[int], k: int | None) -> int:
    """Number of components of a layer of this shape: k, at most the matrix's smaller side; None stands for all."""
    return min(matrix_shape(shape)) if k is None else min(k, *matrix_shape(shape))


def check_rank(k: int, shapes: Iterable[Sequence[int]], key: str = "k") -> None:
    """Raise UserError where k exceeds the rank of every layer that components are taken from, so that it cuts
    nothing."""
    largest = max((min(matrix_shape(shape)) for shape in shapes), default=0)
    if k > largest:
        raise UserError(
            f"{key} is {k}, but the largest convolution that weights are generated from has {largest} singular "
            f"components; give at most {largest}, or `all`"
        )


def factors(matrix: torch.Tensor, k: int | None) -> Factors:
    """P = U S^(1/2) [rows, k] and Q = S^(1/2) V^T [k, columns] of the k largest components (section 4.3).

    k is capped at the smaller side. Where k is at most half of it, the components come from the eigenvectors of the
    smaller Gram matrix, which is twice as fast; P Q is then still the projection on the left (or right) vectors found.
    """
    side = min(matrix.shape)
    k = side if k is None else min(k, side)
    if 2 * k <= side:
        wide = matrix.shape[0] <= matrix.shape[1]
        components = _by_gram(matrix if wide else matrix.T, k)
        if components is not None:
            return _signed(*components) if wide else _signed(components[2].T, components[1], components[0].T)
    u, s, vt = torch.linalg.svd(matrix, full_matrices=False)
    return _signed(u[:, :k], s[:k], vt[:k])


def product_factors(p: torch.Tensor, q: torch.Tensor, k: int | None) -> Factors:
    """:func:`factors` of p q, for p [rows, r] and q [r, columns], without a decomposition of the product.

    Components beyond r are zero, as a decomposition would find them: a network that learned from k components expects
    as many, each of which adds at least what it makes of nothing.
    """
    left, upper = torch.linalg.qr(p)
    right, lower = torch.linalg.qr(q.T)
    u, s, vt = torch.linalg.svd(upper @ lower.T, full_matrices=False)
    side = min(len(p), q.shape[1])
    k = side if k is None else min(k, side)
    found_p, found_q = _signed(left @ u[:, :k], s[:k], vt[:k] @ right.T)
    lacking = max(k - len(s), 0)
    return functional.pad(found_p.T, (0, 0, 0, lacking)).T, functional.pad(found_q, (0, 0, 0, lacking))


def _by_gram(matrix: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """U [rows, k], S [k] and V^T of a wide matrix, or None where its components differ too much in size for it."""
    squares, vectors = torch.linalg.eigh(matrix @ matrix.T)
    s = squares[-k:].flip(0).clamp_min(0).sqrt()
    if not bool(s[-1] > _SMALLEST * s[0]):
        return None
    u = vectors[:, -k:].flip(1)
    return u, s, (u.T @ matrix) / s[:, None]


def _signed(u: torch.Tensor, s: torch.Tensor, vt: torch.Tensor) -> Factors:
    """The largest entry of each left vector becomes positive, its right vector turns with it."""
    largest = u.abs().argmax(0, keepdim=True)
    scale = torch.where(u.gather(0, largest) < 0, -1.0, 1.0).to(u.dtype) * s.sqrt()
    # the memory of both holds one component after another: the networks read them as rows
    return (u * scale).T.contiguous().T, scale.T * vt.contiguous()


def _four(shape: Sequence[int]) -> tuple[int, int, int, int]:
    if not 2 <= len(shape) <= 4:
        raise ValueError(f"a layer's weight has 2 to 4 dimensions, not {tuple(shape)}")
    outputs, inputs, *kernel = shape
    height, width = (1, 1, *kernel)[-2:]
    if height == 1:
        height, width = width, 1
    return outputs, inputs, height, width
