"""When clients are online: a pure function of time, unlike FedScale's is_active, which has a state."""

import numpy as np

from fedscale_ext.population.traces.columns import AvailabilityTrace

# Times are whole microseconds inside. The remainder by a period is then exact, so that a client is
# online exactly at the time that next_online returns, whatever the rounding of floats.
_TICKS = 1_000_000


def _ticks(seconds: np.ndarray | float) -> np.ndarray:
    return np.rint(np.multiply(seconds, _TICKS)).astype(np.int64)


class Availability:
    """Online intervals of clients; client i has row (i - 1) mod n of a trace of n.

    A client is online at t if ``active[k] <= t mod finish_time <= inactive[k]`` for one of its intervals k. Arrays are
    indexed by id - 1. Times are seconds of the virtual clock.

    Args:
        trace: The online intervals.
        num_clients: Number of clients.

    """

    def __init__(self, trace: AvailabilityTrace, num_clients: int) -> None:
        rows = min(len(trace), num_clients)
        intervals = int(trace.offsets[rows])
        owner = np.repeat(np.arange(rows, dtype=np.int32), np.diff(trace.offsets[: rows + 1]))
        begin, end = _ticks(trace.active[:intervals]), _ticks(trace.inactive[:intervals])
        period = _ticks(trace.finish_time[:rows])
        reached = (begin <= end) & (begin < period[owner])  # FedScale's rule never finds the others
        self._begin, self._end, self._owner = begin[reached], end[reached], owner[reached]
        self._offsets = np.searchsorted(self._owner, np.arange(rows + 1))
        # if all periods agree, one number saves a gather per interval
        self._period = period[:1] if (period == period[0]).all() else period
        self._rows = np.arange(num_clients) % rows

    @property
    def size(self) -> int:
        """Number of clients."""
        return len(self._rows)

    def online(self, time_s: float) -> np.ndarray:
        """Return which clients are online at a time, bool [size]."""
        phase = self._of_intervals(_ticks(time_s) % self._period)
        rows = np.zeros(len(self._offsets) - 1, dtype=bool)
        hits = np.flatnonzero((self._begin <= phase) & (phase <= self._end))  # four times as fast as the mask
        rows[self._owner[hits]] = True
        return rows if len(rows) == self.size else rows[self._rows]

    def ever_online(self) -> np.ndarray:
        """Return which clients are online at any time, bool [size]."""
        return (np.diff(self._offsets) > 0)[self._rows]

    def online_at(self, positions: np.ndarray, times_s: np.ndarray) -> np.ndarray:
        """Return whether each of some clients is online at a time of its own.

        Args:
            positions: Client ids - 1, int64 [n].
            times_s: The time of each, float64 [n].

        Returns:
            bool [n].

        """
        rows = self._rows[positions]
        counts = self._offsets[rows + 1] - self._offsets[rows]
        query = np.repeat(np.arange(len(rows)), counts)
        first = np.cumsum(counts) - counts
        interval = np.arange(len(query)) + (self._offsets[rows] - first)[query]
        period = self._period[rows] if len(self._period) > 1 else self._period
        phase = (_ticks(times_s) % period)[query]
        is_online = np.zeros(len(rows), dtype=bool)
        is_online[query[(self._begin[interval] <= phase) & (phase <= self._end[interval])]] = True
        return is_online

    def next_online(self, time_s: float, among: np.ndarray | None = None) -> float | None:
        """Return the first time from ``time_s`` on at which one of some clients is online.

        Args:
            time_s: The earliest time.
            among: Which clients count, bool [size]; None: all.

        Returns:
            The time, at which ``online`` is true for such a client; None if there is none.

        """
        allowed = np.ones(self.size, dtype=bool) if among is None else among
        if (self.online(time_s) & allowed).any():
            return time_s
        allowed_rows = np.zeros(len(self._offsets) - 1, dtype=bool)
        allowed_rows[self._rows[allowed]] = True
        now, period = _ticks(time_s), self._of_intervals(self._period)
        wait = ((self._begin - now) % period)[allowed_rows[self._owner]]
        return float(now + wait.min()) / _TICKS if len(wait) else None

    def _of_intervals(self, of_rows: np.ndarray) -> np.ndarray:
        return of_rows[self._owner] if len(of_rows) > 1 else of_rows
