"""Locks of files: the system lets go of one when its process ends, however it ends."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)  # some systems say EACCES


def lock(path: Path) -> IO[bytes]:
    """Open a file, made if need be, and lock it until it is closed or this process ends.

    A file system without locks is no error: there, nobody is kept out.

    Raises:
        BlockingIOError: Another process has it.
        OSError: The file cannot be opened.

    """
    while True:
        file = path.open("ab+", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD:
                file.close()
                raise BlockingIOError from None
            return file
        with suppress(FileNotFoundError):
            if _is_there(file, path):
                return file
        file.close()  # its last holder has removed it


@contextmanager
def removed_at_end(file: IO[bytes], path: Path) -> Iterator[None]:
    """Hold a file that :func:`lock` gave for the block; at its end the file is removed, then closed.

    Another file of that name stays: where the folder was deleted meanwhile, it is the next holder's.
    """
    with file:
        try:
            yield
        finally:
            with suppress(OSError):
                if _is_there(file, path):
                    path.unlink()  # still locked: who opened it before looks whether it is the file of that name


def _is_there(file: IO[bytes], path: Path) -> bool:
    """Whether ``path`` still names an open file."""
    return os.path.samestat(os.fstat(file.fileno()), path.stat())
