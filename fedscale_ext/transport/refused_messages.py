"""Messages that were not taken: counted by their reason, and told to the log without flooding it."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

_PAUSE_S = 10.0  # between two lines about the same reason


class Refusals:
    """Counts by reason. ``note`` is safe to call from several threads; reasons are this program's own words."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._next_line: dict[str, float] = {}

    def note(self, reason: str, detail: str = "") -> None:
        """Count a refused message. At most one log line per reason and ten seconds reports it, with ``detail``."""
        now = self._clock()
        with self._lock:
            self._counts[reason] += 1
            count = self._counts[reason]
            if now < self._next_line.get(reason, now):
                return
            self._next_line[reason] = now + _PAUSE_S
        logging.warning(f"refused a message: {reason}{f' ({detail[:200]!r})' if detail else ''}; {count} so far")

    def in_words(self) -> str:
        """Return an aside that names the reasons; empty if no message was refused."""
        counts = self.counts()
        return f" (messages were refused: {'; '.join(counts)})" if counts else ""

    def counts(self) -> dict[str, int]:
        """Return the number of messages by reason, in the order of the reasons' names."""
        with self._lock:
            return dict(sorted(self._counts.items()))
