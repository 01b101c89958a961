"""Client ids of a trace's table: whole numbers, or text that names clients."""

import re
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.traces.columns import Where

_MAX_BYTES = 512 << 20  # of an array of text, each as long as the longest
_EXACT = 15  # digits that a float has for certain
_PLAIN = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)  # a whole number below 2^63 as str() writes it
_OTHER_NAME = re.compile(r"0\d+|.*_.*", re.DOTALL)  # what float() reads as a number that is written otherwise


class IdColumn:
    """The column client_id while it is read: each distinct text once, and for every row its index among them."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._rows = array("q")

    def append(self, text: str) -> None:
        """Add a row."""
        self._rows.append(self._index.setdefault(text, len(self._index)))

    @property
    def texts(self) -> list[str]:
        """The distinct ids, in order of first appearance."""
        return list(self._index)

    @property
    def index(self) -> np.ndarray:
        """Index of each row's id in ``texts``, int64 [rows]."""
        return np.array(self._rows, np.int64)


def ids_of_texts(texts: Sequence[str], path: Path, where: Where) -> np.ndarray:
    """Convert texts to client ids.

    A text that is a number in an unusual notation, such as 007, makes all of them names.

    Args:
        texts: One id each.
        path: The file, for messages.
        where: Text that locates the index of an id.

    Returns:
        int64 [n] if all are whole numbers, else text [n].

    Raises:
        UserError: If an id is empty or too long, or a fraction among numbers.

    """
    if all(map(_PLAIN.fullmatch, texts)):
        return np.array(list(map(int, texts)), np.int64)
    numbers = _numbers(texts)
    if numbers is not None:
        return whole(numbers, "client_id", path, where)
    if "" in texts:
        raise UserError(f"{path}: {where(list(texts).index(''))} has no client_id")
    max_length = max(map(len, texts))
    if 4 * max_length * len(texts) > _MAX_BYTES:
        raise UserError(
            f"{path}: client ids of up to {max_length:,} characters in {len(texts):,} rows are too much; shorten them"
        )
    return np.array(texts)


def ids_of_array(column: np.ndarray, path: Path, where: Where) -> np.ndarray:
    """Convert an array of an npz to client ids; see :func:`ids_of_texts`.

    Args:
        column: Numbers or text [n].
        path: The file, for messages.
        where: Text that locates a row.

    Returns:
        int64 [n] or text [n].

    Raises:
        UserError: If the array holds anything else.

    """
    if column.ndim != 1 or column.dtype.kind not in "iufU":
        what = f"{column.dtype}{list(column.shape)}"
        raise UserError(f"{path}: client_id is {what}; it must be one row of whole numbers or of text")
    if column.dtype.kind == "f":
        return whole(column.astype(np.float64), "client_id", path, where)
    if column.dtype.kind != "U":
        return column.astype(np.int64)
    codes = np.ascontiguousarray(column).view(column.dtype.byteorder.replace("=", "<").replace("|", "<") + "u4")
    surrogate = (codes >= 0xD800) & (codes < 0xE000)
    bad = (surrogate | (codes > 0x10FFFF)).reshape(len(column), -1).any(axis=1)
    if bad.any():
        raise UserError(f"{path}: {where(int(np.argmax(bad)))} has a client_id that is no text")
    return ids_of_texts(column.tolist(), path, where)


def whole(column: np.ndarray, name: str, path: Path, where: Where) -> np.ndarray:
    """Convert a column of whole numbers to int64.

    Args:
        column: float64 [n].
        name: Name of the column, for messages.
        path: The file, for messages.
        where: Text that locates a row.

    Raises:
        UserError: If a number is not whole.

    """
    bad = ~((column == np.floor(column)) & (np.abs(column) < 2**53))
    if bad.any():
        row = int(np.argmax(bad))
        raise UserError(f"{path}: {where(row)} has {name} {column[row]:g}; it must be a whole number")
    return column.astype(np.int64)


def _numbers(texts: Sequence[str]) -> np.ndarray | None:
    """Convert texts to float64 [n]; return None if one is no number, or has digits that would be lost."""
    if any(not text.isascii() or _OTHER_NAME.fullmatch(text) or _is_long(text) for text in texts):
        return None
    try:
        return np.array([float(text) for text in texts], np.float64)
    except ValueError:
        return None


def _is_long(text: str) -> bool:
    return len(text) > _EXACT and text.isdigit()
