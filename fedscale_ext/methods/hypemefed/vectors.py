"""A layer's tensors as rows of numbers and back, for networks that map whole vectors.

The paper generates BatchNorm and linear layers in section 5.3.2 without saying how. Here a BatchNorm layer is
one row, with the logarithm of its variances, so that what comes back is positive; an exit's linear layer is one row
per class, weights and bias, as all of it in one row would want a network hundreds of times its size.
"""

from collections.abc import Mapping

import torch

from fedscale_ext.methods.hypemefed.pairs import Shapes

_LEAST_VARIANCE = 1e-5  # BatchNorm's own epsilon: less makes no difference


def width(kind: str, shapes: Shapes) -> int:
    """Number of entries in a row of a layer of kind "conv", "bn" or "fc"."""
    total = sum(torch.Size(shape).numel() for shape in shapes.values())
    return total // shapes["weight"][0] if kind == "fc" else total


def pack(kind: str, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Rows [n, width] of a layer's tensors, which go by the last part of their names."""
    rows = tensors["weight"].shape[0] if kind == "fc" else 1
    return torch.cat([_open(leaf, value).reshape(rows, -1) for leaf, value in tensors.items()], 1)


def unpack(kind: str, rows: torch.Tensor, shapes: Shapes) -> dict[str, torch.Tensor]:
    """Tensors of a layer from rows [n, width]; inverse of :func:`pack`."""
    parts = rows.split([torch.Size(shape).numel() // len(rows) for shape in shapes.values()], 1)
    values = {leaf: part.reshape(shapes[leaf]) for leaf, part in zip(shapes, parts, strict=True)}
    return {leaf: value.exp() if leaf == "running_var" else value.clone() for leaf, value in values.items()}


def _open(leaf: str, value: torch.Tensor) -> torch.Tensor:
    return value.clamp_min(_LEAST_VARIANCE).log() if leaf == "running_var" else value
