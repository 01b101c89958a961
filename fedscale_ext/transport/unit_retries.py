"""Tracks which executor runs which work unit, its retries, and its result.

This is bookkeeping without time or locks; the board guards it. A unit whose executor failed or ended is assigned again
as the next attempt. A result counts only for the current attempt. The unit's content does not depend on the executor or
the attempt, so a job's result does not depend on faults.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from fedscale_ext.transport.leases import ExecutorProcess
from fedscale_ext.transport.units import Attempt, Dropped, Unit


def fault_summary(counts: Mapping[str, int]) -> str:
    """Write counted faults as text: ``1 executor lost, 2 work units handed out again``."""
    one = {fault: re.sub(r"s\b", "", fault, count=1) for fault in counts}
    return ", ".join(f"{n} {one[fault] if n == 1 else fault}" for fault, n in sorted(counts.items()))


@dataclass
class _Entry:
    unit: Unit
    attempt: int = 0
    holder: ExecutorProcess | None = None
    left: set[ExecutorProcess] = field(default_factory=set)  # lost while they held it: they die or come back
    died: set[ExecutorProcess] = field(default_factory=set)
    raised: list[tuple[str, str]] = field(default_factory=list)  # executor, reason

    @property
    def failures(self) -> int:
        return len(self.died) + len(self.raised)

    @property
    def spoilt(self) -> set[str]:
        """Numbers of the executors that failed at it."""
        return {process.executor for process in self.died} | {executor for executor, _ in self.raised}


class UnitTracker:
    """Units that are open, held by a process, or done.

    Args:
        tries: A unit that fails so many times is given up.

    """

    def __init__(self, tries: int = 2) -> None:
        self._tries = tries
        self._entries: dict[int, _Entry] = {}  # of units that are not done
        self._open: deque[int] = deque()
        self._held: dict[ExecutorProcess, int] = {}
        self._last = 0  # id of the newest unit; older ones without an entry are done
        self.results: dict[int, Any] = {}
        self.finished = 0  # results and dropped units so far; a waiting thread sees progress by it
        self.counts: Counter[str] = Counter()  # faults by their description

    def add(self, units: Sequence[Unit]) -> None:
        """Queue units, in this order."""
        for unit in units:
            self._entries[unit.id] = _Entry(unit)
            self._open.append(unit.id)
            self._last = max(self._last, unit.id)

    def next(self, process: ExecutorProcess, here: Set[str]) -> Attempt | None:
        """Assign a unit to a process and return it; None if there is none for it.

        A process that already holds a unit gets it again, because its message was lost. An executor that failed at a
        unit gets it again only if every present executor failed at it. Of several units, it gets the one of which it
        has most already, else the first.

        Args:
            process: The process that requests work.
            here: Numbers of the executors that are present.

        """
        entry = self._held_by(process)
        if entry is None:
            possible = self._possible(process.executor, here)
            entry = max(
                possible, key=lambda each: len(each.unit.cached(process)) if each.unit.cached else 0, default=None
            )
        if entry is None:
            return None
        if entry.holder is None:
            self._open.remove(entry.unit.id)
            entry.holder, entry.attempt = process, entry.attempt + 1
            self._held[process] = entry.unit.id
            if entry.attempt > 1:
                self.counts["work units handed out again"] += 1
        return Attempt(entry.unit, entry.attempt)

    def has_work(self, process: ExecutorProcess, here: Set[str]) -> bool:
        """Return whether :meth:`next` would assign a unit to the process."""
        return self._held_by(process) is not None or any(True for _ in self._possible(process.executor, here))

    def accept(self, process: ExecutorProcess, unit: int, attempt: int, result: Any) -> str | None:
        """Record a result; return the fault for which it does not count, or None if it counts."""
        fault = self._fault(process, unit, attempt)
        if fault is None:
            self._finish(unit, result)
        return fault

    def fail(self, process: ExecutorProcess, unit: int, attempt: int, reason: str) -> str | None:
        """Record that a process failed at its unit; return the fault for which this does not count, or None."""
        fault = self._fault(process, unit, attempt)
        if fault is None:
            self._entries[unit].raised.append((process.executor, reason))
            self._put_back(self._entries[unit])
        return fault

    def held(self, process: ExecutorProcess, unit: int) -> Unit | None:
        """Return the unit with this number if the process holds it, else None."""
        entry = self._held_by(process)
        return entry.unit if entry is not None and entry.unit.id == unit else None

    def leave(self, process: ExecutorProcess, dead: bool) -> None:
        """Record that a process was lost.

        Its unit moves back to the front of the queue. If the process is dead, the unit has failed once more.
        """
        for entry in list(self._entries.values()):
            if entry.holder == process:
                entry.left.add(process)
                self._put_back(entry)
            if dead and process in entry.left:
                entry.left.remove(process)
                entry.died.add(process)
                if entry.holder is None:
                    self._give_up(entry)

    def come_back(self, process: ExecutorProcess) -> None:
        """Record that a lost process lives, so that no unit counts as having killed it."""
        for entry in self._entries.values():
            entry.left.discard(process)
            entry.died.discard(process)

    def withdraw(self, units: Iterable[int], reason: str) -> None:
        """Give up those of ``units`` that are not done."""
        for unit in units:
            if unit in self._entries:
                self._drop(unit, reason)

    def holders(self, units: Set[int]) -> set[str]:
        """Return the numbers of the executors that hold one of the units."""
        return {entry.holder.executor for number in units & self._entries.keys()
                if (entry := self._entries[number]).holder is not None}  # fmt: skip

    def _held_by(self, process: ExecutorProcess) -> _Entry | None:
        return self._entries[self._held[process]] if process in self._held else None

    def _possible(self, executor: str, here: Set[str]) -> Iterator[_Entry]:
        """Yield the open units that an executor may do, in their order."""
        for unit in self._open:
            entry = self._entries[unit]
            if entry.failures + len(entry.left) >= self._tries:
                continue  # it may have killed those that were lost: wait until they die or come back
            if executor not in entry.spoilt or here <= entry.spoilt:
                yield entry

    def _fault(self, process: ExecutorProcess, unit: int, attempt: int) -> str | None:
        entry = self._entries.get(unit)
        if entry is not None and entry.holder == process and entry.attempt == attempt:
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
        self._finish(unit, Dropped(reason))

    def _let_go(self, entry: _Entry) -> None:
        if entry.holder is not None:
            del self._held[entry.holder]
            entry.holder = None

    def _finish(self, unit: int, result: Any) -> None:
        self._let_go(self._entries.pop(unit))
        self.results[unit] = result
        self.finished += 1
