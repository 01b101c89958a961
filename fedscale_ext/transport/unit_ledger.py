"""Who does which work unit, and what became of it. Pure bookkeeping without time; the board guards it.

A unit that comes back is handed out again as its next attempt, and a result counts for the attempt that
is under way only. Its content depends on neither: that is what makes a job's result independent of faults.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from fedscale_ext.transport.leases import Worker


def told(counts: Mapping[str, int]) -> str:
    """Faults for people: ``1 executor lost, 2 work units handed out again``."""
    one = {fault: re.sub(r"s\b", "", fault, count=1) for fault in counts}
    return ", ".join(f"{n} {one[fault] if n == 1 else fault}" for fault, n in sorted(counts.items()))


@dataclass(frozen=True)
class Unit:
    """Work handed to one executor at once. ``models`` are the keys of the states that it needs, ``more`` makes further
    sections of its message: it is called whenever the unit is handed out, by any thread."""

    id: int
    event: str
    header: Mapping[str, Any]
    models: tuple[str, ...]
    more: Callable[[], Mapping[str, bytes]] | None = None


@dataclass(frozen=True)
class Handout:
    """A unit in the hands of an executor, the ``attempt``-th time that it is handed out."""

    unit: Unit
    attempt: int


@dataclass(frozen=True)
class Dropped:
    """What stands in the place of the result of a unit that was given up."""

    reason: str


@dataclass
class _Entry:
    unit: Unit
    attempt: int = 0
    holder: Worker | None = None
    left: set[Worker] = field(default_factory=set)  # had it when they were lost: dead, or they come back
    died: set[Worker] = field(default_factory=set)
    raised: list[tuple[str, str]] = field(default_factory=list)  # executor, reason

    @property
    def failures(self) -> int:
        return len(self.died) + len(self.raised)

    @property
    def spoilt(self) -> set[str]:
        """Executors that failed at it."""
        return {worker.executor for worker in self.died} | {executor for executor, _ in self.raised}


class Ledger:
    """Units that are open, in somebody's hands, or done. One that fails ``tries`` times is given up."""

    def __init__(self, tries: int = 2) -> None:
        self._tries = tries
        self._entries: dict[int, _Entry] = {}  # of units that are not done
        self._open: deque[int] = deque()
        self._held: dict[Worker, int] = {}
        self._last = 0  # id of the newest unit; older ones without an entry are done
        self.results: dict[int, Any] = {}
        self.settled = 0  # results and dropped units so far: whoever waits sees that something happened
        self.counts: Counter[str] = Counter()  # what went wrong, in words

    def add(self, units: Sequence[Unit]) -> None:
        """Units to be done, in this order."""
        for unit in units:
            self._entries[unit.id] = _Entry(unit)
            self._open.append(unit.id)
            self._last = max(self._last, unit.id)

    def next(self, worker: Worker, here: Set[str]) -> Handout | None:
        """The unit that a process holds (it asks again: it has not got it), else the first one for it, which it then
        holds. ``here`` are the executors that are there: one that failed at a unit gets it again only where no other
        is left to try."""
        entry = self._held_by(worker) or self._first(worker.executor, here)
        if entry is None:
            return None
        if entry.holder is None:
            self._open.remove(entry.unit.id)
            entry.holder, entry.attempt = worker, entry.attempt + 1
            self._held[worker] = entry.unit.id
            if entry.attempt > 1:
                self.counts["work units handed out again"] += 1
        return Handout(entry.unit, entry.attempt)

    def has_work(self, worker: Worker, here: Set[str]) -> bool:
        """Whether :meth:`next` would give it a unit."""
        return self._held_by(worker) is not None or self._first(worker.executor, here) is not None

    def accept(self, worker: Worker, unit: int, attempt: int, result: Any) -> str | None:
        """File a result; why it does not count, else None."""
        fault = self._fault(worker, unit, attempt)
        if fault is None:
            self._settle(unit, result)
        return fault

    def fail(self, worker: Worker, unit: int, attempt: int, reason: str) -> str | None:
        """A process could not do its unit: another one tries. Why the message does not count, else None."""
        fault = self._fault(worker, unit, attempt)
        if fault is None:
            self._entries[unit].raised.append((worker.executor, reason))
            self._put_back(self._entries[unit])
        return fault

    def held(self, worker: Worker, unit: int) -> Unit | None:
        """A unit in the hands of this process; None for any other."""
        entry = self._held_by(worker)
        return entry.unit if entry is not None and entry.unit.id == unit else None

    def leave(self, worker: Worker, dead: bool) -> None:
        """A process was lost: its unit is open again, in front; of a dead one, the unit has failed once more."""
        for entry in list(self._entries.values()):
            if entry.holder == worker:
                entry.left.add(worker)
                self._put_back(entry)
            if dead and worker in entry.left:
                entry.left.remove(worker)
                entry.died.add(worker)
                if entry.holder is None:
                    self._give_up(entry)

    def come_back(self, worker: Worker) -> None:
        """A process that was lost lives: no unit has killed it."""
        for entry in self._entries.values():
            entry.left.discard(worker)
            entry.died.discard(worker)

    def withdraw(self, units: Iterable[int], reason: str) -> None:
        """Give up units that are not done."""
        for unit in units:
            if unit in self._entries:
                self._drop(unit, reason)

    def holders(self, units: Set[int]) -> set[str]:
        """Executors that hold one of the units."""
        return {entry.holder.executor for number in units & self._entries.keys()
                if (entry := self._entries[number]).holder is not None}  # fmt: skip

    def _held_by(self, worker: Worker) -> _Entry | None:
        return self._entries[self._held[worker]] if worker in self._held else None

    def _first(self, executor: str, here: Set[str]) -> _Entry | None:
        for unit in self._open:
            entry = self._entries[unit]
            if entry.failures + len(entry.left) >= self._tries:
                continue  # it may have killed them: its fate waits for theirs
            if executor not in entry.spoilt or here <= entry.spoilt:
                return entry
        return None

    def _fault(self, worker: Worker, unit: int, attempt: int) -> str | None:
        entry = self._entries.get(unit)
        if entry is not None and entry.holder == worker and entry.attempt == attempt:
            return None
        if entry is not None and 0 < attempt <= entry.attempt:
            fault = "late results dropped"
        elif entry is None and 0 < unit <= self._last:
            fault = "results of finished units dropped"
        else:
            fault = "unplanned results dropped"
        self.counts[fault] += 1
        return fault

    def _put_back(self, entry: _Entry) -> None:
        self._let_go(entry)
        self._open.appendleft(entry.unit.id)
        self._give_up(entry)

    def _give_up(self, entry: _Entry) -> None:
        if entry.failures >= self._tries:
            why = entry.raised[0][1] if entry.raised else "each time the executor ended"
            self._drop(entry.unit.id, f"its work unit failed {entry.failures} times: {why}")

    def _drop(self, unit: int, reason: str) -> None:
        self.counts["work units dropped"] += 1
        if unit in self._open:
            self._open.remove(unit)
        self._settle(unit, Dropped(reason))

    def _let_go(self, entry: _Entry) -> None:
        if entry.holder is not None:
            del self._held[entry.holder]
            entry.holder = None

    def _settle(self, unit: int, result: Any) -> None:
        self._let_go(self._entries.pop(unit))
        self.results[unit] = result
        self.settled += 1
