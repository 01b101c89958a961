"""Ends a process whose driver is gone, even when the driver was killed without a chance to clean up."""

import os
import threading

PIPE_VARIABLE = "FEDSCALE_EXT_PARENT_PIPE"


def exit_with_parent() -> None:
    """Exit with code 1 as soon as standard input ends, if ``FEDSCALE_EXT_PARENT_PIPE`` is set.

    The driver sets it for the processes that it starts. It holds the other end of their standard input open for as long
    as it lives. The waiting thread is a daemon inside one system call, so it does not delay a normal exit.
    """
    if os.environ.get(PIPE_VARIABLE):
        threading.Thread(target=_wait_for_end, name="parent-pipe", daemon=True).start()


def _wait_for_end() -> None:
    stdin = 0  # the descriptor itself: sys.stdin has a lock that the interpreter's exit would wait for
    try:
        while os.read(stdin, 4096):
            pass
    except OSError:  # closed: as gone as ended
        pass
    os._exit(1)
