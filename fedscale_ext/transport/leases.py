"""Which executors are there. Pure bookkeeping on a clock; the board guards it."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

_GRACE_S = 2.0  # a process whose connection broke has this long to come back, or its lease if that is shorter


class Worker(NamedTuple):
    """A process that serves as an executor: the executor's number, and a name that no other process has.

    Of two processes with one number, the one that started later has the greater name.
    """

    executor: str
    session: str


class Taken(Exception):
    """The number belongs to a process that started later and is there."""


class Unknown(Exception):
    """The process is not registered, or no longer."""


class Displaced(Unknown):
    """Another process has taken over the number."""


@dataclass
class _Lease:
    worker: Worker
    until: float  # without a sign of life by then, the process is taken for dead
    leaves: float = math.inf  # its connection is down: it is away from then on
    lines: int = 0  # calls that it keeps open to show that it lives
    here: bool = True
    dead: bool = False


class Leases:
    """One lease per executor number: ``lease_s`` from the last sign of life of the process that holds it.

    A process whose connection broke is away after a moment, one whose lease has run out is dead as far
    as anyone can tell. Either may come back.
    """

    def __init__(self, lease_s: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self.lease_s, self.clock = lease_s, clock
        self._held: dict[str, _Lease] = {}

    def begin(self, worker: Worker) -> Worker | None:
        """A process has registered; the one that it replaces. Raises Taken; again by the same one is harmless."""
        lease = self._held.get(worker.executor)
        if lease is not None and lease.worker == worker:
            self.renew(worker)
            return None
        if lease is not None and lease.here and lease.worker > worker:
            raise Taken(f"executor {worker.executor} is served by a process that started later")
        self._held[worker.executor] = _Lease(worker, self.clock() + self.lease_s)
        return lease.worker if lease is not None else None

    def renew(self, worker: Worker) -> bool:
        """A sign of life; whether the process had been away or dead. Raises Unknown or Displaced."""
        lease = self._held.get(worker.executor)
        if lease is None:
            raise Unknown("register first")
        if lease.worker != worker:
            raise Displaced(f"another process has taken over executor {worker.executor}")
        returned = not lease.here
        lease.until, lease.leaves, lease.here, lease.dead = self.clock() + self.lease_s, math.inf, True, False
        return returned

    def open_line(self, worker: Worker) -> None:
        """A call by which the process shows that it lives has begun."""
        self._held[worker.executor].lines += 1

    def close_line(self, worker: Worker, broken: bool) -> None:
        """The call has ended; ``broken``: with its connection, and unless another is open the process may be gone."""
        lease = self._held[worker.executor]
        if lease.worker == worker:
            lease.lines -= 1
            if broken and not lease.lines:
                lease.leaves = min(lease.leaves, self.clock() + _GRACE_S)

    def lapse(self) -> list[tuple[Worker, bool]]:
        """Processes that have been lost since this was last asked, and whether their lease has run out."""
        now, lost = self.clock(), []
        for lease in self._held.values():
            dead = now >= lease.until
            if (lease.here and now >= lease.leaves) or (dead and not lease.dead):
                lease.here, lease.dead = False, dead
                lost.append((lease.worker, dead))
        return lost

    def next_lapse(self) -> float:
        """When :meth:`lapse` may have something new to say."""
        times = [lease.until for lease in self._held.values() if not lease.dead]
        times += [lease.leaves for lease in self._held.values() if lease.here]
        return min(times, default=math.inf)

    def here(self) -> set[str]:
        """Numbers of the executors that are there."""
        return {executor for executor, lease in self._held.items() if lease.here}

    def serves(self, worker: Worker) -> bool:
        """Whether a process holds its number and is there."""
        lease = self._held.get(worker.executor)
        return lease is not None and lease.worker == worker and lease.here

    def in_words(self) -> str:
        """When each executor was last heard of."""
        now = self.clock()
        return ", ".join(
            f"executor {executor} was last heard of {now - lease.until + self.lease_s:.0f} s ago"
            for executor, lease in sorted(self._held.items())
        )
