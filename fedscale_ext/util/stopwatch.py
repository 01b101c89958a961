"""Where a process spends its time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds per kind of work since they were last read."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, kind: str) -> Iterator[None]:
        """Count the block's wall time as ``kind``."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[kind] = self._seconds.get(kind, 0.0) + time.perf_counter() - began

    def read(self) -> dict[str, float]:
        """Return the seconds by kind of work, and start anew."""
        seconds, self._seconds = self._seconds, {}
        return seconds
