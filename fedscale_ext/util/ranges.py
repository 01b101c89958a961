"""What values a key may have: a range beside the type in its annotation, checked and told in words.

``lr: Annotated[float, Range(above=0)] = 0.1`` is a hyperparameter above zero. Common ranges have names below.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from fedscale_ext.core.errors import UserError


@dataclass(frozen=True)
class Range:
    """Finite numbers from ``least`` to ``most``, or ``above`` and ``below`` these."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def holds(self, value: float) -> bool:
        """Whether a number lies in the range; NaN lies in none."""
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @property
    def words(self) -> str:
        """``from 0 to 1``, ``above 0 and below 1``, ``at least 1``; empty for all numbers."""
        if self.least is not None and self.most is not None:
            return f"from {_number(self.least)} to {_number(self.most)}"
        ends = (("at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below))
        return " and ".join(f"{word} {_number(end)}" for word, end in ends if end is not None)


Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Fraction = Annotated[float, Range(0, 1)]
PositiveFraction = Annotated[float, Range(above=0, most=1)]
FractionBelowOne = Annotated[float, Range(least=0, below=1)]
OpenFraction = Annotated[float, Range(above=0, below=1)]
Decay = FractionBelowOne  # the factor of an exponential mean, such as beta_1 of Adam or momentum
Count = Annotated[int, Range(1)]
CountOrZero = Annotated[int, Range(0)]


def check_ranges(params: Any, method: str) -> None:
    """Raise UserError for a number of the dataclass ``params`` that is infinite, NaN or outside its range.

    The numbers of a list are checked one by one. None lies in each range. Infinity is allowed as the default of a
    number without a range.
    """
    hints = get_type_hints(type(params), include_extras=True)
    for field in fields(params):
        limits = _range(hints[field.name])
        for key, value in _numbers(f"{method}.{field.name}", getattr(params, field.name)):
            if not math.isfinite(value) and (limits or value != field.default):
                raise UserError(f"{key} is {value}; it must be a finite number")
            if limits and not limits.holds(value):
                raise UserError(f"{key} is {value}; it must be {limits.words}")


def _numbers(key: str, value: Any) -> Iterator[tuple[str, float]]:
    """The number that a value is, or those in a list, each with its place."""
    if isinstance(value, tuple):
        for index, one in enumerate(value):
            yield from _numbers(f"{key}[{index}]", one)
    elif isinstance(value, int | float):
        yield key, value


def values(hint: Any, more: Iterable[Any] = ()) -> str:
    """Describe the values that a type hint allows: ``number above 0 or null``.

    ``more`` holds constraints. A text among them is the whole description.
    """
    description = next((each for each in more if isinstance(each, str)), None)
    if description is not None:
        return description
    if get_origin(hint) is Annotated:
        kind, *constraints = get_args(hint)
        return values(kind, [*constraints, *more])
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"list of {values(get_args(hint)[0]).split(' of ')[0]}s"
    words = {bool: "true, false", int: "whole number", float: "number", str: "text", type(None): "null"}
    if hint not in words:
        return " or ".join(values(member, more) for member in get_args(hint))
    limits = _of(more).words if hint in (int, float) else ""
    return f"{words[hint]} {limits}".strip()


def value_text(value: Any) -> str:
    """Return a value as a configuration writes it."""
    return json.dumps(value) if isinstance(value, bool | list | tuple | None) else str(value)


def _range(hint: Any) -> Range | None:
    """The range in a hint, also in that of one of several types."""
    if get_origin(hint) is Annotated:
        return next((each for each in get_args(hint)[1:] if isinstance(each, Range)), None)
    return next(filter(None, map(_range, get_args(hint))), None) if get_origin(hint) is not Literal else None


def _of(constraints: Iterable[Any]) -> Range:
    """The range of constraints, which may be pydantic's."""
    ends: dict[str, Any] = {}
    for each in constraints:
        if isinstance(each, Range):
            return each
        for end, theirs in (("least", "ge"), ("most", "le"), ("above", "gt"), ("below", "lt")):
            if hasattr(each, theirs):
                ends[end] = getattr(each, theirs)
    return Range(**ends)


def _number(value: float) -> str:
    power = int(value).bit_length() - 1
    return f"2^{power}" if value >= 2**31 and value == 2**power else f"{value:,.10g}"
