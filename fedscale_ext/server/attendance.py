"""Who the executors of a running job are, what each does, and how fast: what ``driver status`` shows."""

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any

from fedscale_ext.core.events import Emit
from fedscale_ext.transport.registration import ExecutorInfo
from fedscale_ext.transport.units import Unit

EVENT = "executors"
_PAUSE_S = 1.0  # between two events while nobody comes or goes
_MOST_LOST = 10  # executors of an event that are lost: the last ones


@dataclass
class _Executor:
    """An executor's line of the event; ``since`` in seconds since 1970, ``busy_s`` from the hand-out to the answer."""

    executor: str
    host: str
    device: str
    joined: bool  # none of the configuration's
    unit: int = 0  # 0: it waits
    kind: str = ""
    round: int = 0
    clients: int = 0
    since: float = 0.0
    units_done: int = 0
    clients_done: int = 0
    busy_s: float = 0.0
    lost_at: float = 0.0  # in seconds since 1970; 0 while it is present


class Attendance:
    """Keeps a line for each executor and emits those of who is present or lost; safe to use from several threads.

    Args:
        emit: Takes the events.
        present: Returns the numbers of the executors that are present.
        clock: Returns the time in seconds since 1970.
        call_later: Calls a function once, after so many seconds.

    """

    def __init__(
        self,
        emit: Emit,
        present: Callable[[], set[str]],
        clock: Callable[[], float] = time.time,
        call_later: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        self._emit, self._present, self._clock = emit, present, clock
        self._call_later = call_later or _call_later
        self._lock = threading.Lock()
        self._planned = self._closed = False  # whether a later event is planned, and whether there are no more
        self._lines: dict[str, _Executor] = {}
        self._emitted_at = 0.0
        self._emitted: set[str] = set()  # executors of the last event

    def come(self, executor: str, info: ExecutorInfo, joined: bool) -> None:
        """Note an executor that has registered; a process that replaces another one begins a new line."""
        with self._lock:
            self._lines[executor] = _Executor(executor, info.host, info.device, joined)
        self.tell()

    def take(self, executor: str, unit: Unit) -> None:
        """Note that an executor was given a unit; again, if the message was lost."""
        with self._lock:
            line = self._lines.get(executor)
            if line is not None and line.unit != unit.id:
                line.unit, line.kind, line.round = unit.id, unit.event, int(unit.header.get("round", 0))
                line.clients, line.since = _clients(unit.header), self._clock()

    def finish(self, executor: str, unit: int) -> None:
        """Note that an executor has done its unit."""
        with self._lock:
            line = self._lines.get(executor)
            if line is not None and line.unit == unit:
                line.units_done, line.clients_done = line.units_done + 1, line.clients_done + line.clients
                line.busy_s += self._clock() - line.since
                line.unit = 0

    def leave(self, executor: str) -> None:
        """Note that an executor has left in order: unlike one that is lost, it has no line any more."""
        with self._lock:
            if executor not in self._present():  # else another process has its number by now
                self._lines.pop(executor, None)
        self.tell()

    def tell_soon(self) -> None:
        """Call :meth:`tell` from another thread, for whoever must not wait."""
        self._call_later(0.0, self.tell)

    def tell(self) -> None:
        """Emit the lines of those who are present, and of the last ones that are lost.

        This is at once if somebody came or went, else once in a second.
        """
        with self._lock:
            if self._closed:
                return
            present = self._present()
            now = self._clock()
            for executor, line in self._lines.items():
                if executor in present:
                    line.lost_at = 0.0
                else:  # its work is another one's by now
                    line.unit, line.lost_at = 0, line.lost_at or now
            since = now - self._emitted_at
            if present == self._emitted and 0 <= since < _PAUSE_S:
                if not self._planned:  # what was just done must not stay untold until something else is
                    self._planned = True
                    self._call_later(_PAUSE_S - since, self._tell_planned)
                return
            self._emitted, self._emitted_at = present, now
            here = [asdict(self._lines[name]) for name in sorted(present & self._lines.keys(), key=int)]
            lost = sorted((line for line in self._lines.values() if line.lost_at), key=lambda line: line.lost_at)
            self._emit({"event": EVENT, "executors": here, "lost": [asdict(line) for line in lost[-_MOST_LOST:]]})

    def close(self) -> None:
        """Emit nothing any more."""
        with self._lock:
            self._closed = True

    def _tell_planned(self) -> None:
        with self._lock:
            self._planned, self._emitted_at = False, 0.0
        self.tell()


def _call_later(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def _clients(header: Any) -> int:
    """Count the clients that a unit trains or tests."""
    for name in ("items", "clients"):
        clients = header.get(name)
        if isinstance(clients, Collection):
            return len(clients)
    return 0
