"""Where work units wait for executors and their results for the aggregator, without polling."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unit:
    """Work handed to one executor at once. ``models`` are the keys of the states that it needs."""

    id: int
    event: str
    header: Mapping[str, Any]
    models: tuple[str, ...]


class BoardTimeout(Exception):
    """Nothing happened for as long as was allowed; the message says what was awaited."""


class Board:
    """Hands each unit to one executor and gathers one result per unit; all waits are bounded."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: deque[Unit] = deque()
        self._taken: dict[int, tuple[str, Unit]] = {}
        self._results: dict[int, Any] = {}
        self._accepted = 0  # results so far: whoever waits sees that something happened
        self._closed = False
        self.dropped = 0  # results that were late, repeated or never asked for

    def run(self, units: Sequence[Unit], timeout_s: float) -> Iterator[Any]:
        """Results of ``units`` in their order, each as soon as it and all before it are there.

        Raises BoardTimeout when none came for ``timeout_s``.
        """
        with self._changed:
            self._open.extend(units)
            self._changed.notify_all()
        missing = {unit.id for unit in units}
        for unit in units:
            yield self._await(unit.id, missing, timeout_s)

    def _await(self, unit: int, missing: set[int], timeout_s: float) -> Any:
        """The result of ``unit``; any other one that comes in starts the wait anew."""
        with self._changed:
            seen = self._accepted
            deadline = time.monotonic() + timeout_s
            while unit not in self._results:
                if self._closed:
                    raise BoardTimeout("the board was closed while units were missing")
                if self._accepted > seen:
                    seen, deadline = self._accepted, time.monotonic() + timeout_s
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise BoardTimeout(self._awaited(timeout_s, missing))
            missing.discard(unit)
            return self._results.pop(unit)

    def take(self, executor: str, timeout_s: float) -> Unit | None:
        """The next unit for an executor, waiting for one up to ``timeout_s``; None if there was none."""
        with self._changed:
            self._changed.wait_for(lambda: self._open or self._closed, timeout_s)
            if self._closed or not self._open:
                return None
            unit = self._open.popleft()
            self._taken[unit.id] = executor, unit
            return unit

    def complete(self, executor: str, unit_id: int, result: Any) -> bool:
        """Accept the result of a unit that this executor holds; any other one is counted and dropped."""
        with self._changed:
            if self._taken.get(unit_id, ("", None))[0] != executor:
                self.dropped += 1
                return False
            del self._taken[unit_id]
            self._results[unit_id] = result
            self._accepted += 1
            self._changed.notify_all()
            return True

    def held(self, executor: str, unit_id: int) -> Unit | None:
        """A unit that this executor holds; None for any other."""
        with self._changed:
            holder, unit = self._taken.get(unit_id, ("", None))
            return unit if holder == executor else None

    def release(self, executor: str) -> None:
        """Put the units of an executor that started anew back in front of the others."""
        with self._changed:
            held = [unit for holder, unit in self._taken.values() if holder == executor]
            for unit in reversed(held):
                del self._taken[unit.id]
                self._open.appendleft(unit)
            self._changed.notify_all()

    def close(self) -> None:
        """No more units: every waiting executor is let go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether executors are to shut down."""
        return self._closed

    def _awaited(self, timeout_s: float, wanted: set[int]) -> str:
        held = {holder for holder, unit in self._taken.values()}
        by = f"held by executor {', '.join(sorted(held))}" if held else "taken by no executor"
        missing = len(wanted - self._results.keys())
        return f"no work unit was finished within {timeout_s:g} s; {missing} are missing, {by}"
