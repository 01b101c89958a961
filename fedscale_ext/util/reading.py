"""Files that somebody else made: opened only where they are plain files, and read within bounds.

A pipe or a device in the place of a file would keep a reader waiting, or feed it for ever. The functions
raise OSError with a ``strerror`` in plain words, or ValueError, so that callers can name the file and say
what to do.
"""

import errno
import json
import os
import stat
from collections.abc import Collection, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

MEGA = 1 << 20
DEEPEST = 32  # containers in containers of a JSON document that is not a table of numbers


def open_plain(path: str | os.PathLike[str], most: int | None = None) -> BufferedReader:
    """Open a plain file of at most ``most`` bytes for reading bytes; OSError for any other."""
    # a pipe without a writer opens at once this way, and is then seen to be one
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        if most is not None and status.st_size > most:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, of which {most:,} are allowed", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_plain(path: str | os.PathLike[str], most: int) -> bytes:
    """Read a plain file of at most ``most`` bytes."""
    with open_plain(path, most) as file:
        return file.read(most)


def repeated_column(header: Sequence[str], read: Collection[str]) -> str | None:
    """Describe the first column of ``read`` that stands twice in a table's ``header``; None where there is none.

    Such a table is ambiguous: columns are read by name.
    """
    for index, name in enumerate(header):
        if name in read and name in header[:index]:
            return f"the header has the column {name!r} twice; keep one of them"
    return None


def load_json(data: bytes | str, deepest: int | None = DEEPEST) -> Any:
    """Parse a JSON text; ValueError where it is broken or nests more than ``deepest`` containers."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if deepest is not None:
        _check_depth(value, deepest)
    return value


def read_json(path: Path, most: int = 16 * MEGA, deepest: int | None = DEEPEST) -> Any:
    """Parse a JSON file of at most ``most`` bytes, as :func:`load_json` does."""
    return load_json(read_plain(path, most), deepest)


def _check_depth(value: Any, deepest: int) -> None:
    level = [value]
    for _ in range(deepest + 1):
        if not level:
            return
        below: list[Any] = []
        for each in level:
            inner = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
            below += [one for one in inner if isinstance(one, dict | list)]
        level = below
    raise ValueError("it is nested too deeply")
