"""Specs of networks with several exits: made, checked, cut to a prefix, and measured (see ``multi_exit.py``)."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.inputs import early_halvings

Sides = tuple[int, int]  # height and width, of a map or a kernel

FIELDS = ("input_shape", "num_classes", "backbone", "widths", "common", "pools", "positions", "exits", "heads",
          "predict", "dropout", "bias")  # fmt: skip
_CHOICES = {
    "backbone": ("vgg", "resnet18", "cnn", "mlp"),
    "heads": ("all", "last"),
    "predict": ("last", "mean"),
    "common": (True, False),
    "bias": (True, False),
}


def make(
    backbone: str,
    input_shape: Sequence[int],
    num_classes: int,
    widths: Sequence[Sequence[int]],
    *,
    common: bool = True,
    pools: Sequence[bool] | None = None,
    positions: Sequence[int] | None = None,
    exits: int | None = None,
    heads: str = "all",
    predict: str = "last",
    dropout: float = 0.0,
    bias: bool = False,
) -> ModelSpec:
    """Spec of a network, by default with an exit behind every block and a max-pool behind every stage.

    UserError where its parts, or its depth and the input's size, do not fit together.
    """
    positions = range(1, len(widths) + (not common)) if positions is None else positions
    spec = ModelSpec.make(
        "multi_exit",
        backbone=backbone,
        input_shape=tuple(input_shape),
        num_classes=num_classes,
        widths=tuple(map(tuple, widths)),
        common=common,
        pools=tuple([True] * len(widths) if pools is None else pools),
        positions=tuple(positions),
        exits=len(positions) if exits is None else exits,
        heads=heads,
        predict=predict,
        dropout=dropout,
        bias=bias,
    )
    check(spec)
    return spec


def prefix(spec: ModelSpec, exits: int) -> ModelSpec:
    """The spec of the network up to its ``exits``-th exit; UserError where it has fewer."""
    child = spec.replace(exits=exits)
    _check_fields(child)
    return child


def num_exits(spec: ModelSpec) -> int:
    """Return the number of exits that the network has at its full depth."""
    return len(spec["positions"])


def outputs(spec: ModelSpec) -> int:
    """Return from how many exits a sample's logits come in a forward pass."""
    return int(spec["exits"]) if spec["heads"] == "all" else 1


class Stage(NamedTuple):
    """One stage that a network holds: ``exit`` is the name of the exit behind it, if one is held.

    ``first``: whether it is a ResNet's first stage, which has no stride.
    """

    name: str
    widths: tuple[int, ...]
    pool: bool
    exit: str | None
    first: bool


def stages(spec: ModelSpec) -> Iterator[Stage]:
    """The stages that the network holds, in order."""
    behind = {block: number for number, block in enumerate(spec["positions"][: spec["exits"]], 1)}
    deepest = max(behind)
    for index, (widths, pool) in enumerate(zip(spec["widths"], spec["pools"], strict=True)):
        block = index if spec["common"] else index + 1
        held = block in behind and (spec["heads"] == "all" or block == deepest)
        yield Stage(
            f"block{block}" if block else "common", widths, pool, f"exit{behind[block]}" if held else None, not index
        )
        if block == deepest:
            return


def _check_fields(spec: ModelSpec) -> None:
    for name, choices in _CHOICES.items():
        if spec[name] not in choices:
            raise UserError(f"multi_exit spec: {name} is {spec[name]!r}; it must be {' or '.join(map(repr, choices))}")
    least = 2 if spec["backbone"] == "resnet18" else 1
    if not all(len(widths) >= least and min(widths) >= 1 for widths in spec["widths"]):
        raise UserError(
            f"multi_exit spec: widths are {spec['widths']}; every stage needs {least} or more, all positive"
        )
    blocks, positions, exits = len(spec["widths"]) - spec["common"], list(spec["positions"]), spec["exits"]
    if positions != sorted(set(positions)) or not positions or positions[0] < 1 or positions[-1] != blocks:
        raise UserError(
            f"multi_exit spec: positions are {positions}; they must rise from 1 or more to the last block, {blocks}"
        )
    if not 1 <= exits <= len(positions):
        raise UserError(
            f"the {spec['backbone']} has {len(positions)} exits; a network up to exit {exits} cannot be cut from it"
        )
    if len(spec["pools"]) != len(spec["widths"]):
        raise UserError(f"multi_exit spec: pools are {spec['pools']}; each of {len(spec['widths'])} stages needs one")
    if not 0.0 <= spec["dropout"] < 1.0:
        raise UserError(f"multi_exit spec: dropout is {spec['dropout']}; it must be at least 0 and below 1")


def check(spec: ModelSpec) -> None:
    """Raise UserError if the spec's fields, or its depth and the input's size, do not fit together."""
    _check_fields(spec)
    for stage, (height, width) in zip(stages(spec), maps(spec), strict=False):
        if height * width < 2 and spec["backbone"] != "mlp":
            raise UserError(
                f"{stage.name} of this {spec['backbone']} would see one position only, and BatchNorm needs more: "
                f"{spec['input_shape'][1]}x{spec['input_shape'][2]} is too small, use larger inputs or fewer poolings"
            )


def kernel(spec: ModelSpec) -> Sides:
    """Return the kernel's sides: 3, or 1 along a side of length 1, where a larger kernel would read padding only."""
    _, height, width = spec["input_shape"]
    return (3 if height > 1 else 1, 3 if width > 1 else 1)


def pool_of(sides: Sides) -> Sides:
    """Return the sides of a max-pool, which keeps a side of length 1."""
    return (min(2, sides[0]), min(2, sides[1]))


def _halved(sides: Sides) -> Sides:
    """Return the sides of a map after a convolution of stride 2."""
    return (-(-sides[0] // 2), -(-sides[1] // 2))


def early(spec: ModelSpec) -> int:
    """Return how many of the two halvings of a ResNet's stem are kept (:mod:`fedscale_ext.models.inputs`)."""
    return early_halvings(spec["input_shape"], 2, len(spec["widths"]) - 1)


def maps(spec: ModelSpec) -> list[Sides]:
    """Return maps' height and width: the input of each stage's last convolutions, then the deepest exit's."""
    sides: Sides = spec["input_shape"][1:]
    sizes = []
    if spec["backbone"] == "resnet18":
        for _ in range(early(spec)):
            sides = _halved(sides)
        for stage in stages(spec):
            sides = sides if stage.first else _halved(sides)
            sizes.append(sides)
        return [*sizes, sides]
    for stage in stages(spec):
        sizes.append(sides)
        if stage.pool:
            high, wide = pool_of(sides)
            sides = sides[0] // high, sides[1] // wide
    return [*sizes, sides]


def positions_read(spec: ModelSpec) -> list[int]:
    """Return, for each stage, the number of positions per channel that an exit behind it reads."""
    if spec["backbone"] in ("resnet18", "mlp"):
        return [1] * len(list(stages(spec)))
    return [math.prod(sides) for sides in maps(spec)[1:]]
