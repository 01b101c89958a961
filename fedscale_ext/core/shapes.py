"""Shapes of samples: reading them from text, and the bounds that they must keep."""

import re
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from fedscale_ext.core.errors import UserError

Shape = tuple[int, int, int]  # channels, height, width

MAX_SIDE = 1024  # of what a model gets
SIZE_OR_SHAPE = "height x width, as 128x128, or channels x height x width, as 3x128x128"


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as users write it: 3x64x64."""
    return "x".join(map(str, shape))


def parse_sides(value: Any) -> tuple[int, ...] | None:
    """Read the sides of a shape from text ("3x64x64", "3, 64, 64") or a sequence; None for anything else."""
    sides = re.split("[x ,]+", value.strip("([ ])")) if isinstance(value, str) else value
    if not isinstance(sides, list | tuple) or not all(re.fullmatch(r"[0-9]{1,4}", str(side)) for side in sides):
        return None
    return tuple(int(side) for side in sides)


def check_shape(shape: Sequence[int], values: bool = False) -> Shape:
    """Return the shape (C, H, W); UserError unless a model can take it.

    Sides have 1 to 1024 pixels. Pictures have 1 or 3 channels, ``values`` 1 to 1024.
    """
    if (
        len(shape) != 3
        or any(isinstance(side, bool) or not isinstance(side, Integral) for side in shape)
        or not (1 <= shape[0] <= MAX_SIDE if values else shape[0] in (1, 3))
        or not all(1 <= side <= MAX_SIDE for side in shape[1:])
    ):
        raise UserError(
            f"the input shape {tuple(shape)} is not possible: it must be (channels, height, width) with "
            f"{f'1 to {MAX_SIDE}' if values else '1 or 3'} channels and sides of 1 to {MAX_SIDE} pixels"
        )
    return int(shape[0]), int(shape[1]), int(shape[2])


def parse_picture_shape(text: str, where: str) -> tuple[int, ...]:
    """Read (height, width) or (channels, height, width) from ``text``; messages name the option ``where``."""
    sides = parse_sides(text)
    if sides is None or len(sides) not in (2, 3):
        raise UserError(f"{where} {text!r} is no shape: give {SIZE_OR_SHAPE}")
    if not all(1 <= side <= MAX_SIDE for side in sides) or (len(sides) == 3 and sides[0] not in (1, 3)):
        raise UserError(f"{where} {text} is not possible: give sides of 1 to {MAX_SIDE} pixels and 1 or 3 channels")
    return sides


def with_channels(sides: Sequence[int], channels: int) -> Shape:
    """Complete ``sides`` to (C, H, W): (H, W) get ``channels``. UserError where the shape is out of bounds."""
    return check_shape([channels, *sides] if len(sides) == 2 else sides)
