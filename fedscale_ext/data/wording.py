"""Parts of sentences about data: lists that are cut short, numbers of things."""

import unicodedata
from collections.abc import Sequence

_LONGEST_NAME = 60


def quoted(names: Sequence[str], shown: int = 5) -> str:
    """List the first names in quotation marks, and the number of the others."""
    return listed([repr(name[:_LONGEST_NAME]) for name in names], shown)


def listed(items: Sequence[object], shown: int = 5, noun: str = "") -> str:
    """List the first items, and the number of the others: "1, 2, 3 and 4 more", or with a noun "and 4 more sizes"."""
    rest = len(items) - shown
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(map(str, items[:shown])) + (f"{more} {noun}{'s' * (rest > 1)}" if more and noun else more)


def quantile_text(value: float) -> str:
    """Write a quantile of whole numbers, with the decimals that it has: 1,025, 25.5, 18.25."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def counted(number: int, one: str, many: str = "") -> str:
    """Write a number with its noun: "1 picture", "1,200 pictures"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def composed(name: str) -> str:
    """Write each accented letter of a name as one character: Unicode can use two, which look the same."""
    return unicodedata.normalize("NFC", name)
