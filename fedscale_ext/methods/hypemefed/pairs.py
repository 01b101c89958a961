"""Which layer's weights are generated from which (Shin et al., SenSys 2024, sections 4.3, 4.4 and 5.3.2).

The text goes from the n-1-th layer to the n-th, its public code from a block's layer to the next block's at the same
position; the second is what "H_{n->n+1} predicts the parameters of the next exit based on the current one" needs.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

_NAME = re.compile(r"(block|exit)(\d+)\.(?:(.+)\.)?([^.]+)")
_NORM = ("weight", "bias", "running_mean", "running_var")

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]  # by the last part of a tensor's name
Tensors = Mapping[str, torch.Tensor]  # of a whole state or a part of it, by name


@dataclass(frozen=True)
class Pair:
    """A layer and the one at its position in the next block.

    ``source`` and ``target`` are names such as ``block1.conv1``; ``block`` is the target's. ``kind``: "conv" for
    convolutions and linear layers within blocks, "bn" for normalisation, "fc" for the exits' linear layers.
    """

    kind: str
    block: int
    source: str
    target: str
    source_shapes: Shapes
    target_shapes: Shapes

    def names(self, layer: str) -> list[str]:
        """The state's names of ``layer``, which is ``source`` or ``target``."""
        shapes = self.source_shapes if layer == self.source else self.target_shapes
        return [f"{layer}.{leaf}" for leaf in shapes]


@dataclass(frozen=True)
class Skipped:
    """A layer that is never generated, and why."""

    target: str
    reason: str


def kinds(generate: str) -> frozenset[str]:
    """The kinds of layers that a value of ``generate`` stands for: "conv", "+bn", "+fc" or "+bn+fc"."""
    return frozenset({"conv", *generate.replace("conv", "").split("+")} - {""})


def pairs(shapes: Mapping[str, Sequence[int]], generated: Collection[str]) -> tuple[list[Pair], list[Skipped]]:
    """Pair each layer with the one at its position in the block before.

    Kernels must be of one size: a residual network's 1x1 shortcut is not made from a 3x3 convolution.

    Args:
        shapes: Shape of each tensor of the full model's state.
        generated: Kinds of layers that are generated.

    Returns:
        Pairs by block and name, and the layers that are never generated.

    """
    layers = _layers(shapes)
    matched, skipped = [], []
    for (stem, block, position), (kind, target) in sorted(layers.items()):
        if kind not in generated or block == 1:
            continue
        name = _layer_name(stem, block, position)
        before = layers.get((stem, block - 1, position))
        if before is None or before[0] != kind:
            skipped.append(Skipped(name, f"{stem}{block - 1} has no layer of its kind at its position"))
            continue
        reason = _unlike(kind, before[1]["weight"], target["weight"])
        if reason:
            skipped.append(Skipped(name, reason))
            continue
        matched.append(Pair(kind, block, _layer_name(stem, block - 1, position), name, before[1], target))
    return sorted(matched, key=lambda pair: (pair.block, pair.target)), skipped


def _layers(shapes: Mapping[str, Sequence[int]]) -> dict[tuple[str, int, str], tuple[str, Shapes]]:
    """Kind and shapes of each layer of blocks and exits, by stem, number and position."""
    tensors: dict[tuple[str, int, str], dict[str, Shape]] = defaultdict(dict)
    for name, shape in shapes.items():
        match = _NAME.fullmatch(name)
        if match:
            stem, number, position, leaf = match.groups()
            tensors[stem, int(number), position or ""][leaf] = tuple(shape)
    layers: dict[tuple[str, int, str], tuple[str, Shapes]] = {}
    for key, leaves in tensors.items():
        if "weight" not in leaves:
            continue
        if len(leaves["weight"]) == 1:
            layers[key] = "bn", {leaf: leaves[leaf] for leaf in _NORM if leaf in leaves}
        elif key[0] == "block":
            layers[key] = "conv", {"weight": leaves["weight"]}
        else:
            layers[key] = "fc", {leaf: leaves[leaf] for leaf in ("weight", "bias") if leaf in leaves}
    return layers


def _unlike(kind: str, source: Shape, target: Shape) -> str:
    if kind == "conv" and source[2:] != target[2:]:
        return f"its kernel is {_size(target)}, that of the block before {_size(source)}"
    if kind == "fc" and source[0] != target[0]:
        return f"it has {target[0]} classes, the exit before {source[0]}"
    return ""


def _size(shape: Shape) -> str:
    return "x".join(map(str, shape[2:])) or "none"


def _layer_name(stem: str, number: int, position: str) -> str:
    return f"{stem}{number}.{position}" if position else f"{stem}{number}"
