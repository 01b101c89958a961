"""Leases of executors: which are present, away or dead. Bookkeeping on a clock; the board guards it."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

_GRACE_S = 2.0  # a process whose connection broke has this long to come back, or its lease if that is shorter


class ExecutorProcess(NamedTuple):
    """A process that serves as an executor: the executor's number, and a session name unique to the process.

    Of two processes with one number, the one that started later has the greater session name.
    """

    executor: str
    session: str


class NumberInUse(Exception):
    """Raised when the number belongs to a present process that started later."""


class NotRegistered(Exception):
    """Raised when the process is not registered, or not any more."""


class Superseded(NotRegistered):
    """Raised when another process has taken over the number."""


@dataclass
class _Lease:
    process: ExecutorProcess
    until: float  # when the process counts as dead unless it shows life before
    leaves: float = math.inf  # when it counts as away, because its connection is down
    lines: int = 0  # calls that it keeps open to show that it lives
    here: bool = True
    dead: bool = False


class Leases:
    """One lease per executor number.

    A process whose connection broke is away after a short grace period. One whose lease has run out counts as dead.
    Either may come back.

    Args:
        lease_s: Seconds from a process's last sign of life to the end of its lease.
        clock: Returns the time in seconds.

    """

    def __init__(self, lease_s: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self.lease_s, self.clock = lease_s, clock
        self._held: dict[str, _Lease] = {}

    def begin(self, process: ExecutorProcess) -> ExecutorProcess | None:
        """Give the lease of its number to a process that registers; registering twice is harmless.

        Args:
            process: The process.

        Returns:
            The process that it replaces, or None.

        Raises:
            NumberInUse: If the number belongs to a present process that started later.

        """
        lease = self._held.get(process.executor)
        if lease is not None and lease.process == process:
            self.renew(process)
            return None
        if lease is not None and lease.here and lease.process > process:
            raise NumberInUse(f"executor {process.executor} is served by a process that started later")
        self._held[process.executor] = _Lease(process, self.clock() + self.lease_s)
        return lease.process if lease is not None else None

    def renew(self, process: ExecutorProcess) -> bool:
        """Record a sign of life.

        Args:
            process: The process that shows life.

        Returns:
            Whether the process had been away or dead.

        Raises:
            NotRegistered: If no process holds the number.
            Superseded: If another process holds it.

        """
        lease = self._held.get(process.executor)
        if lease is None:
            raise NotRegistered("register first")
        if lease.process != process:
            raise Superseded(f"another process has taken over executor {process.executor}")
        returned = not lease.here
        lease.until, lease.leaves, lease.here, lease.dead = self.clock() + self.lease_s, math.inf, True, False
        return returned

    def open_line(self, process: ExecutorProcess) -> None:
        """Record the begin of a call that a process keeps open to show life."""
        self._held[process.executor].lines += 1

    def close_line(self, process: ExecutorProcess, broken: bool) -> None:
        """Record the end of such a call.

        Args:
            process: The process.
            broken: Whether its connection broke. Unless another call is open, the process is then away after a moment.

        """
        lease = self._held.get(process.executor)
        if lease is not None and lease.process == process:
            lease.lines -= 1
            if broken and not lease.lines:
                lease.leaves = min(lease.leaves, self.clock() + _GRACE_S)

    def end(self, process: ExecutorProcess) -> bool:
        """End the lease of a process that leaves in order; return whether it had one."""
        lease = self._held.get(process.executor)
        if lease is None or lease.process != process:
            return False
        del self._held[process.executor]
        return True

    def lapse(self) -> list[tuple[ExecutorProcess, bool]]:
        """Return the processes lost since the last call, each with whether its lease has run out."""
        now, lost = self.clock(), []
        for lease in self._held.values():
            dead = now >= lease.until
            if (lease.here and now >= lease.leaves) or (dead and not lease.dead):
                lease.here, lease.dead = False, dead
                lost.append((lease.process, dead))
        return lost

    def next_lapse(self) -> float:
        """Return the earliest time at which :meth:`lapse` may find another lost process."""
        times = [lease.until for lease in self._held.values() if not lease.dead]
        times += [lease.leaves for lease in self._held.values() if lease.here]
        return min(times, default=math.inf)

    def here(self) -> set[str]:
        """Return the numbers of the executors that are present."""
        return {executor for executor, lease in self._held.items() if lease.here}

    def serves(self, process: ExecutorProcess) -> bool:
        """Return whether a process holds its number and is present."""
        lease = self._held.get(process.executor)
        return lease is not None and lease.process == process and lease.here

    def in_words(self) -> str:
        """Write how long ago each executor last showed life."""
        now = self.clock()
        if not self._held:
            return "all have left"
        return ", ".join(
            f"executor {executor} was last heard of {now - lease.until + self.lease_s:.0f} s ago"
            for executor, lease in sorted(self._held.items(), key=lambda item: int(item[0]))
        )
