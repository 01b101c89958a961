"""Values of configuration keys that are neither a number nor a word: how they are read, and what they can be."""

from typing import Any

from pydantic_core import PydanticCustomError

from fedscale_ext.core.shapes import parse_sides

SIZE = "auto, or a whole number from 1"
_SAMPLE_SHAPE = "channels x height x width, as 3x64x64"
SHAPE_OR_NONE = f"{_SAMPLE_SHAPE}, or null"


def read_size(value: Any) -> int | str:
    """Return the value of ``cohort_size`` or ``unit_size``; PydanticCustomError for anything else."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    if isinstance(value, str) and value.isdecimal() and int(value) >= 1:
        return int(value)
    raise PydanticCustomError("size", f"it should be {SIZE}")


def read_sample_shape(value: Any) -> tuple[int, int, int] | None:
    """Return (C, H, W) of ``sample_shape``, None for null; PydanticCustomError for anything else."""
    if value is None:
        return None
    sides = parse_sides(value)
    if sides is not None and len(sides) == 3:
        return sides[0], sides[1], sides[2]
    raise PydanticCustomError("sample_shape", f"it should be {_SAMPLE_SHAPE}")
