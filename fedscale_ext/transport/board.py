"""The board where work units wait for executors, and results for the aggregator, without polling."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fedscale_ext.transport.leases import ExecutorProcess, Leases
from fedscale_ext.transport.unit_retries import UnitTracker
from fedscale_ext.transport.units import Attempt, Unit


class BoardTimeout(Exception):
    """Raised when no unit was finished within the limit; the message says what is missing."""


class NoExecutors(BoardTimeout):
    """Raised when no executor was present for ``replacement_s`` while units were missing."""


def _always() -> bool:
    return True


def _nobody_asks() -> None:
    pass


class Board:
    """Assigns each unit to one executor and gathers one result per unit; all waits are bounded.

    Several calls take a function ``active``, which returns whether the caller still waits for the answer. Whoever
    changes what it returns must call :meth:`wake` afterwards. :meth:`take`, :meth:`renew` and :meth:`stay` raise
    leases.NotRegistered if the process is not registered.

    Args:
        leases: Leases of the executors.
        tracker: State of the units.
        replacement_s: Seconds without any executor after which the missing units are given up.
        lost: Called when executors were lost; it must not wait, since all other calls wait for it.

    """

    def __init__(
        self,
        leases: Leases | None = None,
        tracker: UnitTracker | None = None,
        replacement_s: float = math.inf,
        lost: Callable[[], None] = _nobody_asks,
    ) -> None:
        self._changed = threading.Condition()
        self._lost = lost
        self._leases, self._tracker = leases or Leases(), tracker or UnitTracker()
        self._clock, self._replacement_s = self._leases.clock, replacement_s
        self._alone: float | None = None  # since when no executor is present
        self._closed = False

    # ---- the aggregator's side ----

    def run(self, units: Sequence[Unit], timeout_s: float, *, lenient: bool = False) -> Iterator[Any]:
        """Run units and yield their results in order, each as soon as it and all before it are finished.

        Args:
            units: The units to run.
            timeout_s: Longest wait in seconds for the next finished unit.
            lenient: Give up the missing units at a timeout, instead of raising.

        Yields:
            The result of each unit; a units.Dropped for one that was given up.

        Raises:
            BoardTimeout: If no unit was finished for ``timeout_s``.
            NoExecutors: If no executor was present for ``replacement_s``.

        """
        with self._changed:
            self._tracker.add(units)
            self._changed.notify_all()
        missing = {unit.id for unit in units}
        for unit in units:
            try:
                yield self._await(unit.id, missing, timeout_s)
            except BoardTimeout as error:
                if not lenient or self._closed:
                    raise
                with self._changed:
                    self._tracker.withdraw(missing, str(error))
                yield self._await(unit.id, missing, timeout_s)

    def _await(self, unit: int, missing: set[int], timeout_s: float) -> Any:
        """Wait for the result of ``unit``; any other result that arrives restarts the wait."""
        with self._changed:
            seen, deadline = self._tracker.finished, self._clock() + timeout_s
            while unit not in self._tracker.results:
                if self._closed:
                    raise BoardTimeout("the board was closed while units were missing")
                self.lapse()
                now = self._clock()
                if self._tracker.finished > seen or self._alone is not None:
                    seen, deadline = self._tracker.finished, now + timeout_s
                if self._alone is not None and now >= self._alone + self._replacement_s:
                    raise NoExecutors(self._alone_in_words(missing))
                if now >= deadline:
                    raise BoardTimeout(self._awaited(timeout_s, missing))
                if unit not in self._tracker.results:
                    ends = [deadline, self._leases.next_lapse()]
                    ends += [self._alone + self._replacement_s] if self._alone is not None else []
                    self._changed.wait(min(max(0.0, min(ends) - now), threading.TIMEOUT_MAX))
            missing.discard(unit)
            return self._tracker.results.pop(unit)

    def lapse(self) -> None:
        """Record lost executors, and put their units back."""
        with self._changed:
            for process, dead in (gone := self._leases.lapse()):
                self._tracker.leave(process, dead)
                self._tracker.counts["executors lost"] += dead
                self._changed.notify_all()
            if gone:
                self._lost()
            if self._leases.here():
                self._alone = None
            elif self._alone is None:
                self._alone = self._clock()

    def close(self) -> None:
        """End all waits of executors; there are no more units."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Return whether executors are to shut down."""
        return self._closed

    @property
    def here(self) -> set[str]:
        """Return the numbers of the executors that are present."""
        with self._changed:
            return self._leases.here()

    def faults(self) -> dict[str, int]:
        """Return how often each kind of fault occurred since the last call."""
        with self._changed:
            counts = dict(+self._tracker.counts)
            self._tracker.counts.clear()
            return counts

    def count(self, fault: str) -> None:
        """Count a fault of this kind."""
        with self._changed:
            self._tracker.counts[fault] += 1

    # ---- the executors' side ----

    def register(self, process: ExecutorProcess) -> None:
        """Register a process as an executor; a process that it replaces counts as dead.

        Args:
            process: The process.

        Raises:
            leases.NumberInUse: If the number belongs to a present process that started later.

        """
        with self._changed:
            replaced = self._leases.begin(process)
            if replaced is not None:
                self._tracker.leave(replaced, dead=True)
                self._tracker.counts["executors replaced"] += 1
            self._tracker.come_back(process)
            self._changed.notify_all()

    def renew(self, process: ExecutorProcess) -> None:
        """Record a sign of life of a process."""
        with self._changed:
            if self._leases.renew(process):
                self._tracker.come_back(process)
                self._changed.notify_all()

    def leave(self, process: ExecutorProcess) -> None:
        """Let a process go that leaves in order: its unit goes to another one, and has not failed."""
        with self._changed:
            if self._leases.end(process):
                self._tracker.leave(process, dead=False)
                self._tracker.come_back(process)
                self._changed.notify_all()

    def stay(self, process: ExecutorProcess, timeout_s: float, active: Callable[[], bool]) -> None:
        """Keep a call open that shows that a process lives.

        It ends when the time is over, the board is closed, or the process is gone, which is recorded at once.

        Args:
            process: The process.
            timeout_s: Longest duration of the call in seconds.
            active: Returns whether the process still waits.

        """
        with self._changed:
            self.renew(process)
            self._leases.open_line(process)
            self._changed.wait_for(lambda: self._closed or not active(), timeout_s)
            self._leases.close_line(process, broken=not active())
            self._changed.notify_all()

    def take(self, process: ExecutorProcess, timeout_s: float, active: Callable[[], bool] = _always) -> Attempt | None:
        """Assign the next unit to a process, waiting for one if necessary.

        A process that holds a unit gets it again, because the reply that carried it was lost.

        Args:
            process: The process.
            timeout_s: Longest wait in seconds.
            active: Returns whether the process still waits.

        Returns:
            The unit and the number of its attempt; None if there was none in time.

        """
        with self._changed:
            self.renew(process)
            self._changed.wait_for(lambda: self._closed or not active() or self._has_work(process), timeout_s)
            if self._closed or not active() or not self._has_work(process):
                return None
            return self._tracker.next(process, self._leases.here())

    def complete(self, process: ExecutorProcess, unit: int, attempt: int, result: Any) -> str | None:
        """Accept a result; return None, or the fault for which it was dropped if the process does not hold the unit."""
        with self._changed:
            fault = self._tracker.accept(process, unit, attempt, result)
            self._changed.notify_all()
            return fault

    def fail(self, process: ExecutorProcess, unit: int, attempt: int, reason: str) -> str | None:
        """Record that a process failed at its unit; return None, or the fault for which the message was dropped."""
        with self._changed:
            fault = self._tracker.fail(process, unit, attempt, reason)
            self._changed.notify_all()
            return fault

    def held(self, process: ExecutorProcess, unit: int) -> Unit | None:
        """Return the unit with this number if the process holds it, else None."""
        with self._changed:
            return self._tracker.held(process, unit)

    def wake(self) -> None:
        """Make every open call check again whether its process still waits."""
        with self._changed:
            self._changed.notify_all()

    def _has_work(self, process: ExecutorProcess) -> bool:
        return self._leases.serves(process) and self._tracker.has_work(process, self._leases.here())

    # ---- words ----

    def _awaited(self, timeout_s: float, unit_ids: set[int]) -> str:
        left = unit_ids - self._tracker.results.keys()
        held = self._tracker.holders(left)
        by = f"held by executor {', '.join(sorted(held))}" if held else "taken by no executor"
        return f"no work unit was finished within {timeout_s:g} s; {len(left)} are missing, {by}"

    def _alone_in_words(self, unit_ids: set[int]) -> str:
        left = len(unit_ids - self._tracker.results.keys())
        return (
            f"{left} work units are missing and no executor is left to do them: {self._leases.in_words()}, and none "
            f"came back or was replaced within {self._replacement_s:g} s"
        )
