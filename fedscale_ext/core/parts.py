"""A share of a number, without what rounding adds to it or takes away."""

from math import isclose


def part_of(share: float, number: float) -> float:
    """Return ``share`` of ``number``; where only rounding keeps it from a whole number, that one.

    In floating point, 0.07 * 100 is above 7 and 0.29 * 100 below 29.
    """
    part = share * number
    whole = round(part)
    return whole if isclose(part, whole, rel_tol=1e-12, abs_tol=1e-9) else part
