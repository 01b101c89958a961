"""One process at a time writes the folder of a run, also where machines share it."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.util.locks import lock, removed_at_end

NAME = ".lock"  # of the file in the folder, while a process writes there


@contextmanager
def sole_writer(run: Path) -> Iterator[None]:
    """Hold the folder of a run against other jobs' processes: of this machine, and of others with the same folder.

    A folder without locks, or on a full disk, is no error: there, nobody is kept out.

    Raises:
        UserError: Another process holds it.

    """
    path = run / NAME
    try:
        file = lock(path)
    except BlockingIOError:
        raise UserError(
            f"the run {run} is written by {_holder(path)}: wait until it has ended, or stop it there"
        ) from None
    except OSError:  # the job will say what is wrong with its folder
        yield
        return
    with removed_at_end(file, path):
        with suppress(OSError):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}".encode())
        yield


def _holder(path: Path) -> str:
    """Who holds a lock, as far as its file tells."""
    with suppress(OSError, ValueError):
        return one_line(path.read_text(encoding="utf-8"), 200) or "another process"
    return "another process"
