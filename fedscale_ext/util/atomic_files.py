"""Files that are either whole or absent: written under another name, then renamed."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedscale_ext.core.errors import UserError


def write_atomic(path: Path, *parts: bytes | memoryview | str, mode: int = 0o666) -> None:
    """Write the parts, one after the other, as one file; makes its folder.

    A file's name in a text may not be UTF-8: what cannot be written stands as its escape.

    Args:
        path: The file.
        parts: What it holds.
        mode: Its permissions, from which the process's mask is taken.

    Raises:
        OSError: It cannot be written; the error names ``path``, and an earlier file is as before.

    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode) as temporary, temporary.open("wb") as file:
        file.writelines(part.encode(errors="backslashreplace") if isinstance(part, str) else part for part in parts)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Give the block an empty file beside ``path``, which takes its place once the block has written it.

    Arguments and errors are those of :func:`write_atomic`. An error in the block leaves an earlier file as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode))
        yield temporary
        _sync(temporary, os.O_RDWR)
        os.replace(temporary, path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # a write that fails does not say of which file
            error.filename = str(path)
        raise
    finally:
        with contextlib.suppress(OSError):  # it was renamed, or there is no such folder
            temporary.unlink()
    with contextlib.suppress(OSError):  # not every platform can open a folder
        _sync(path.parent, os.O_RDONLY)  # the rename itself lasts through a power cut


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Raise UserError, which names ``path``, where the block cannot write it."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
