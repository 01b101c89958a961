"""Locks of files: the system lets go of one when its process ends, however it ends."""

import errno
import fcntl
import os
from contextlib import suppress
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
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # its last holder has removed it
