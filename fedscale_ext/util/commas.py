"""Lists written as text, in which a comma within brackets belongs to a value: ``nets:Net(width=9, depth=2), lenet``."""

from collections.abc import Iterable
from typing import Any


def at_commas(text: str) -> list[str]:
    """Split a text at its commas outside brackets."""
    return [str(part) for part in rejoined(text.split(","), ",")]


def rejoined(parts: Iterable[Any], comma: str = ", ") -> list[Any]:
    """Join what commas within brackets have parted in a list of values, as in YAML's [Net(9, 2), lenet]."""
    joined: list[Any] = []
    depth = 0
    for part in parts:
        if depth > 0:
            joined[-1] = f"{joined[-1]}{comma}{part}"
        else:
            joined.append(part)
        depth += sum((sign in "[(") - (sign in "])") for sign in part) if isinstance(part, str) else 0
    return joined
