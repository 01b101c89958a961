"""Where work units wait for executors and their results for the aggregator, without polling."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fedscale_ext.transport.leases import Leases, Worker
from fedscale_ext.transport.unit_ledger import Handout, Ledger, Unit


class BoardTimeout(Exception):
    """Nothing happened for as long as was allowed; the message says what was awaited."""


def _always() -> bool:
    return True


class Board:
    """Hands each unit to one executor and gathers one result per unit; all waits are bounded.

    ``active`` of a call tells whether the process that made it still waits for the answer: what
    changes that must be followed by :meth:`wake`. Every call of a process but :meth:`register` raises
    leases.Unknown when it is not registered.
    """

    def __init__(
        self, leases: Leases | None = None, ledger: Ledger | None = None, replacement_s: float = math.inf
    ) -> None:
        self._changed = threading.Condition()
        self._leases, self._ledger = leases or Leases(), ledger or Ledger()
        self._clock, self._replacement_s = self._leases.clock, replacement_s
        self._alone: float | None = None  # since when no executor is there
        self._closed = False

    # ---- the aggregator's side ----

    def run(self, units: Sequence[Unit], timeout_s: float, *, lenient: bool = False) -> Iterator[Any]:
        """Results of ``units`` in their order, each as soon as it and all before it are there.

        A unit that was given up has a ledger.Dropped in its place. When none was finished for ``timeout_s``,
        or no executor was there for ``replacement_s``: BoardTimeout, or where ``lenient`` the missing ones
        are given up.
        """
        with self._changed:
            self._ledger.add(units)
            self._changed.notify_all()
        missing = {unit.id for unit in units}
        for unit in units:
            try:
                yield self._await(unit.id, missing, timeout_s)
            except BoardTimeout as error:
                if not lenient or self._closed:
                    raise
                with self._changed:
                    self._ledger.withdraw(missing, str(error))
                yield self._await(unit.id, missing, timeout_s)

    def _await(self, unit: int, missing: set[int], timeout_s: float) -> Any:
        """The result of ``unit``; any other one that comes in starts the wait anew."""
        with self._changed:
            seen, deadline = self._ledger.settled, self._clock() + timeout_s
            while unit not in self._ledger.results:
                if self._closed:
                    raise BoardTimeout("the board was closed while units were missing")
                self.lapse()
                now = self._clock()
                if self._ledger.settled > seen or self._alone is not None:
                    seen, deadline = self._ledger.settled, now + timeout_s
                if self._alone is not None and now >= self._alone + self._replacement_s:
                    raise BoardTimeout(self._alone_in_words(missing))
                if now >= deadline:
                    raise BoardTimeout(self._awaited(timeout_s, missing))
                if unit not in self._ledger.results:
                    ends = [deadline, self._leases.next_lapse()]
                    ends += [self._alone + self._replacement_s] if self._alone is not None else []
                    self._changed.wait(min(max(0.0, min(ends) - now), threading.TIMEOUT_MAX))
            missing.discard(unit)
            return self._ledger.results.pop(unit)

    def lapse(self) -> None:
        """Take note of executors that were lost, and of their units."""
        with self._changed:
            for worker, dead in self._leases.lapse():
                self._ledger.leave(worker, dead)
                self._ledger.counts["executors lost"] += dead
                self._changed.notify_all()
            if self._leases.here():
                self._alone = None
            elif self._alone is None:
                self._alone = self._clock()

    def close(self) -> None:
        """No more units: every waiting executor is let go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether executors are to shut down."""
        return self._closed

    @property
    def here(self) -> set[str]:
        """Numbers of the executors that are there."""
        with self._changed:
            return self._leases.here()

    def faults(self) -> dict[str, int]:
        """What went wrong and was mended since this was last asked: how often, by kind."""
        with self._changed:
            counts = dict(+self._ledger.counts)
            self._ledger.counts.clear()
            return counts

    def count(self, fault: str) -> None:
        """Count something that went wrong."""
        with self._changed:
            self._ledger.counts[fault] += 1

    # ---- the executors' side ----

    def register(self, worker: Worker) -> None:
        """A process serves as an executor; one that it replaces is dead. Raises leases.Taken."""
        with self._changed:
            replaced = self._leases.begin(worker)
            if replaced is not None:
                self._ledger.leave(replaced, dead=True)
                self._ledger.counts["executors replaced"] += 1
            self._changed.notify_all()

    def renew(self, worker: Worker) -> None:
        """A sign of life."""
        with self._changed:
            if self._leases.renew(worker):
                self._ledger.come_back(worker)
                self._changed.notify_all()

    def stay(self, worker: Worker, timeout_s: float, active: Callable[[], bool]) -> None:
        """Wait until the time is over, the board is closed or the process is gone, which is noted at once."""
        with self._changed:
            self.renew(worker)
            self._leases.open_line(worker)
            self._changed.wait_for(lambda: self._closed or not active(), timeout_s)
            self._leases.close_line(worker, broken=not active())
            self._changed.notify_all()

    def take(self, worker: Worker, timeout_s: float, active: Callable[[], bool] = _always) -> Handout | None:
        """The next unit for a process, waiting for one up to ``timeout_s``; None if there was none.

        A process that holds a unit gets that one again: the reply that carried it was lost.
        """
        with self._changed:
            self.renew(worker)
            self._changed.wait_for(lambda: self._closed or not active() or self._has_work(worker), timeout_s)
            if self._closed or not active() or not self._has_work(worker):
                return None
            return self._ledger.next(worker, self._leases.here())

    def complete(self, worker: Worker, unit: int, attempt: int, result: Any) -> str | None:
        """Accept the result of a unit that this process holds; why it was counted and dropped instead, else None."""
        with self._changed:
            fault = self._ledger.accept(worker, unit, attempt, result)
            self._changed.notify_all()
            return fault

    def fail(self, worker: Worker, unit: int, attempt: int, reason: str) -> str | None:
        """A process could not do its unit; why the message was counted and dropped instead, else None."""
        with self._changed:
            fault = self._ledger.fail(worker, unit, attempt, reason)
            self._changed.notify_all()
            return fault

    def held(self, worker: Worker, unit: int) -> Unit | None:
        """A unit that this process holds; None for any other."""
        with self._changed:
            return self._ledger.held(worker, unit)

    def wake(self) -> None:
        """Let every call look again whether the process that made it still waits."""
        with self._changed:
            self._changed.notify_all()

    def _has_work(self, worker: Worker) -> bool:
        return self._leases.serves(worker) and self._ledger.has_work(worker, self._leases.here())

    # ---- words ----

    def _awaited(self, timeout_s: float, wanted: set[int]) -> str:
        left = wanted - self._ledger.results.keys()
        held = self._ledger.holders(left)
        by = f"held by executor {', '.join(sorted(held))}" if held else "taken by no executor"
        return f"no work unit was finished within {timeout_s:g} s; {len(left)} are missing, {by}"

    def _alone_in_words(self, wanted: set[int]) -> str:
        left = len(wanted - self._ledger.results.keys())
        return (
            f"{left} work units are missing and no executor is left to do them: {self._leases.in_words()}, and none "
            f"came back or was replaced within {self._replacement_s:g} s"
        )
