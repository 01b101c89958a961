"""When clients are online: a pure function of time (FedScale's is_active remembers what it was asked)."""

import numpy as np

from fedscale_ext.population.columns import AvailabilityTrace

# Times are whole microseconds inside: the remainder by a period is then exact, so that a client is
# online at the very moment that next_online names, whatever the rounding of floats.
_TICKS = 1_000_000


def _ticks(seconds: np.ndarray | float) -> np.ndarray:
    return np.rint(np.multiply(seconds, _TICKS)).astype(np.int64)


class Availability:
    """Online intervals of ``num_clients`` clients; client i has row (i - 1) mod n of a trace of n.

    A client is online at t when ``active[k] <= t mod finish_time <= inactive[k]`` for one of its
    intervals k. Clients are named by their position (id - 1); times are seconds of the virtual clock.
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
        # one number serves all where they agree, which spares a gather per interval
        self._period = period[:1] if (period == period[0]).all() else period
        self._rows = np.arange(num_clients) % rows

    @property
    def size(self) -> int:
        """Number of clients."""
        return len(self._rows)

    def online(self, time_s: float) -> np.ndarray:
        """bool[size]: who is online at a time."""
        phase = self._of_intervals(_ticks(time_s) % self._period)
        rows = np.zeros(len(self._offsets) - 1, dtype=bool)
        hits = np.flatnonzero((self._begin <= phase) & (phase <= self._end))  # four times as fast as the mask
        rows[self._owner[hits]] = True
        return rows if len(rows) == self.size else rows[self._rows]

    def ever_online(self) -> np.ndarray:
        """bool[size]: who is online at some time."""
        return (np.diff(self._offsets) > 0)[self._rows]

    def online_at(self, positions: np.ndarray, times_s: np.ndarray) -> np.ndarray:
        """bool[len(positions)]: whether each of these clients is online at its own time."""
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
        """The first time from ``time_s`` on at which a client of mask ``among`` (default: any) is online.

        None if there is no such time. At the time returned, ``online`` is true for such a client.
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
