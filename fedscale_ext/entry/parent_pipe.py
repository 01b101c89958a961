"""Ends a process whose driver is gone, even when the driver was killed without a chance to clean up."""

import os
import select
import signal
import threading
import time
from collections.abc import Callable

PIPE_VARIABLE = "FEDSCALE_EXT_PARENT_PIPE"
SILENCE_VARIABLE = "FEDSCALE_EXT_PARENT_SILENCE_S"
_LEAVE_S = 3.0
_STDIN = 0  # the descriptor itself: sys.stdin has a lock that the interpreter's exit would wait for


def exit_with_parent(end: Callable[[], None] | None = None) -> None:
    """Exit with code 1 as soon as standard input ends, if ``FEDSCALE_EXT_PARENT_PIPE`` is set.

    The driver sets it for the processes that it starts. It holds the other end of their standard input open for as long
    as it lives. On other machines, where a connection may be dead without a word, ``FEDSCALE_EXT_PARENT_SILENCE_S`` is
    set, too. The driver writes more often than that, and its silence counts as its end. Nobody else is there to ask for
    an orderly end: SIGTERM comes first, and what was begun, such as a checkpoint, has 3 s. The waiting thread is a
    daemon inside one system call, so it does not delay a normal exit.

    Args:
        end: Ends this process, in place of that.

    """
    if os.environ.get(PIPE_VARIABLE):
        silence = os.environ.get(SILENCE_VARIABLE)
        seconds = float(silence) if silence else None
        end = end or (_exit if seconds is None else _leave)
        threading.Thread(target=_wait_for_end, args=(seconds, end), name="parent-pipe", daemon=True).start()


def _wait_for_end(silence_s: float | None, end: Callable[[], None]) -> None:
    try:
        while select.select([_STDIN], [], [], silence_s)[0] and os.read(_STDIN, 4096):
            pass
    except OSError:  # closed: as gone as ended
        pass
    end()


def _exit() -> None:
    os._exit(1)


def _leave() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_LEAVE_S)
    os._exit(1)
