"""One command at a time writes a data folder."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedscale_ext.core.errors import UserError


@contextmanager
def sole_writer(out_dir: Path) -> Iterator[None]:
    """Hold the name of a data folder against other commands, through a lock beside it that goes with the block.

    The system lets go when the process ends, however it ends. A file system without locks is no error.

    Raises:
        UserError: Another command holds it, or the folder above it cannot be written.

    """
    path = out_dir.parent / f".{out_dir.name}.lock"
    try:
        out_dir.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock(path)
    except BlockingIOError:
        raise UserError(
            f"another command is writing {out_dir} at the moment: wait until it has ended, or name another folder"
        ) from None
    except OSError as error:
        raise UserError(f"{out_dir} cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # still locked: who opened it before looks whether it is the file of that name
        os.close(lock)


def _lock(path: Path) -> int:
    """Open and lock a file, made if need be; BlockingIOError where another process has it."""
    while True:
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):  # some systems say EACCES
                os.close(lock)
                raise BlockingIOError from None
            return lock
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)  # its last holder has removed it
