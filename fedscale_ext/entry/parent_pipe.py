"""Ends a process whose driver is gone, even when the driver was killed without a chance to clean up."""

import os
import select
import threading
from collections.abc import Callable

PIPE_VARIABLE = "FEDSCALE_EXT_PARENT_PIPE"
SILENCE_VARIABLE = "FEDSCALE_EXT_PARENT_SILENCE_S"
_STDIN = 0  # the descriptor itself: sys.stdin has a lock that the interpreter's exit would wait for


def exit_with_parent(end: Callable[[], None] = lambda: os._exit(1)) -> None:
    """Exit with code 1 as soon as standard input ends, if ``FEDSCALE_EXT_PARENT_PIPE`` is set.

    The driver sets it for the processes that it starts. It holds the other end of their standard input open for as long
    as it lives. On other machines, where a connection may be dead without a word, ``FEDSCALE_EXT_PARENT_SILENCE_S`` is
    set, too: the driver writes more often than that, and its silence counts as its end. The waiting thread is a daemon
    inside one system call, so it does not delay a normal exit.

    Args:
        end: Ends this process.

    """
    if os.environ.get(PIPE_VARIABLE):
        silence = os.environ.get(SILENCE_VARIABLE)
        seconds = float(silence) if silence else None
        threading.Thread(target=_wait_for_end, args=(seconds, end), name="parent-pipe", daemon=True).start()


def _wait_for_end(silence_s: float | None, end: Callable[[], None]) -> None:
    try:
        while select.select([_STDIN], [], [], silence_s)[0] and os.read(_STDIN, 4096):
            pass
    except OSError:  # closed: as gone as ended
        pass
    end()
