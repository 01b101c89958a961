"""Processes that train jobs, and what an interrupt does to them.

Ctrl-C reaches all processes of a terminal. A worker hears it only while it trains: its job ends then, as one in any
process. While Python starts there, an interrupt would end in a traceback in the midst of an import.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Workers(ProcessPoolExecutor):
    """A pool whose processes end with this one, each after a single job. Jobs come from the main thread.

    Args:
        count: Processes at a time; None for one per core.

    """

    def __init__(self, count: int | None) -> None:
        super().__init__(
            count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_end_with,
            initargs=(os.getpid(),),
            max_tasks_per_child=1,
        )

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a worker call ``fn``; KeyboardInterrupt after the worker was started, for an interrupt meanwhile."""
        with _held_back():
            return super().submit(_interruptible, fn, *args, **kwargs)


@contextmanager
def _held_back() -> Iterator[None]:
    """Let SIGINT wait; processes and threads that start meanwhile, and all that these start, hold it back, too."""
    interrupts: list[int] = []
    # other threads may take the signal, whatever this one's mask is: Python's handler runs in this one all the same
    handler = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, handler)
        if interrupts and callable(handler):  # a background job of a shell ignores it
            handler(signal.SIGINT, None)


def _interruptible(fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call ``fn`` in a worker; KeyboardInterrupt for an interrupt since the worker was started."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return fn(*args, **kwargs)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process ends now


def _end_with(parent: int) -> None:
    """Let this process end when the process ``parent`` has ended; a killed command leaves no workers behind."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
