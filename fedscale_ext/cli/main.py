"""The ``fedscale`` command as a process: what it prints and its exit code, also for errors of any kind."""

import errno
import os
import sys
import traceback
from datetime import datetime
from pathlib import Path
from typing import Any

from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.util import full_disk

# what is wrong with a path that a person gave, rather than with this program
_OF_A_PATH = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG,
}  # fmt: skip
_SHOWN = 200  # characters of a file's name


def main() -> None:
    """Run the command line: exit code 0 done, 2 bad input, 1 failed, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure:  # a terminal that lacks a character shows "?" rather than ending the job
            reconfigure(errors="replace")
    try:
        from fedscale_ext.cli.app import app  # an interrupt while it is imported ends as quietly as a later one

        app(prog_name="fedscale")
    except UserError as error:
        print(f"fedscale: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as unexpected:
        fault = _of_a_loop(unexpected) or unexpected
        if isinstance(fault, OSError) and full_disk.is_full(fault):
            print(f"fedscale: {_full_disk(fault)}", file=sys.stderr)
            sys.exit(2)
        if (
            isinstance(fault, OSError)
            and fault.errno in _OF_A_PATH
            and isinstance(fault.filename, str | bytes | os.PathLike)
        ):
            name = one_line(os.fsdecode(fault.filename), _SHOWN)
            print(f"fedscale: {name} cannot be read or written: {fault.strerror}", file=sys.stderr)
            sys.exit(2)
        print(
            f"fedscale: unexpected {type(fault).__name__}: {_first_line(fault)}; {_keep_traceback()}", file=sys.stderr
        )
        sys.exit(1)


def _of_a_loop(error: Exception) -> OSError | None:
    """The system's error of links that lead in a circle, of which pathlib makes a RuntimeError; None for others."""
    cause = error.__context__
    if isinstance(error, RuntimeError) and isinstance(cause, OSError) and cause.errno == errno.ELOOP:
        return cause
    return None


def _full_disk(error: OSError) -> str:
    """Say what cannot be written; a file of the driver's records may lie elsewhere."""
    from fedscale_ext.driver.jobs import state_dir

    name = str(error.filename or "a file")
    try:
        elsewhere = Path(name).is_relative_to(state_dir())
    except UserError:
        elsewhere = False
    advice = "make room, or set FEDSCALE_EXT_STATE to a folder on another disk" if elsewhere else "make room"
    return full_disk.sentence(error, name, advice)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no message"])[0]


def _keep_traceback() -> str:
    """Append the current traceback to ``error.log`` in the state directory; where it went, in words."""
    from fedscale_ext.driver.jobs import state_dir

    path: Path | None = None
    try:
        path = state_dir() / "error.log"
        with path.open("a", encoding="utf-8") as log:
            log.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {' '.join(sys.argv)}\n{traceback.format_exc()}\n")
    except (OSError, UserError):
        return f"its traceback could not be written to {path or 'the state directory'}"
    return f"its traceback is in {path}"
