"""Processes that train jobs, and what an interrupt does to them.

Ctrl-C reaches all processes of a terminal. A worker hears it only while it trains: its job ends then, as one in any
process. While Python starts there, an interrupt would end in a traceback in the midst of an import. A worker that
replaces an interrupted one starts after the signal, so that this process passes the interrupt on to all workers.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from types import FrameType, TracebackType
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Workers(ProcessPoolExecutor):
    """A pool whose processes end with this one, each after a single job. Jobs come from the main thread.

    Args:
        count: Processes at a time; None for one per core.

    """

    def __init__(self, count: int | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._interrupted = context.Event()
        super().__init__(
            count,
            mp_context=context,
            initializer=_begin,
            initargs=(os.getpid(), self._interrupted),
            max_tasks_per_child=1,
        )

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a worker call ``fn``; KeyboardInterrupt after the worker was started, for an interrupt meanwhile."""
        with _held_back():
            return super().submit(_interruptible, fn, *args, **kwargs)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for all jobs; end them first if this process was interrupted."""
        if isinstance(error, KeyboardInterrupt):
            self._interrupted.set()  # for workers that start from now on
            for worker in multiprocessing.active_children():
                with suppress(ProcessLookupError):  # it has ended meanwhile
                    os.kill(cast(int, worker.pid), signal.SIGINT)
        super().__exit__(kind, error, traceback)


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
    """Call ``fn`` in a worker; KeyboardInterrupt for an interrupt since the first worker of the pool was started."""
    try:
        signal.signal(signal.SIGINT, _interrupt_once)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if _interrupted is not None and _interrupted.is_set():
            raise KeyboardInterrupt
        return fn(*args, **kwargs)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process ends now


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    """Interrupt the job; the terminal's signal and the one that is passed on are one interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


_interrupted: Event | None = None  # in a worker: set when the process that started it was interrupted


def _begin(parent: int, interrupted: Event) -> None:
    """Prepare a worker: it ends when the process ``parent`` has ended; a killed command leaves no workers behind."""
    global _interrupted
    _interrupted = interrupted

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
