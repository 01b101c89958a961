"""When devices are online: a pure function of time (FedScale's is_active remembers what it was asked)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Availability:
    """Online intervals of n devices, each repeating after its own period.

    Device i is online at time t when ``begin[j] <= t mod period_s[i] <= end[j]`` for an interval j
    in ``offsets[i]:offsets[i + 1]``. All times are in seconds of the virtual clock, and not negative.
    """

    offsets: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    period_s: np.ndarray

    @classmethod
    def from_intervals(cls, intervals: Sequence[tuple[Sequence[float], Sequence[float], float]]) -> "Availability":
        """From one (begins, ends, period) per device."""
        counts = [len(begins) for begins, _, _ in intervals]
        return cls(
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            begin=np.concatenate([np.asarray(begins, dtype=np.float64) for begins, _, _ in intervals] or [np.zeros(0)]),
            end=np.concatenate([np.asarray(ends, dtype=np.float64) for _, ends, _ in intervals] or [np.zeros(0)]),
            period_s=np.array([period for _, _, period in intervals], dtype=np.float64),
        )

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.period_s)

    def take(self, devices: np.ndarray) -> "Availability":
        """The same for a choice of devices (positions, repeats allowed)."""
        counts = np.diff(self.offsets)[devices]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        places = np.repeat(self.offsets[devices] - offsets[:-1], counts) + np.arange(offsets[-1])
        return Availability(offsets, self.begin[places], self.end[places], self.period_s[devices])

    def online(self, time_s: float) -> np.ndarray:
        """bool [n]: who is online at a time."""
        return self._any_interval(np.fmod(time_s, self.period_s))

    def online_at(self, devices: np.ndarray, times_s: np.ndarray) -> np.ndarray:
        """bool [len(devices)]: whether each device (position) is online at its own time."""
        chosen = self.take(np.asarray(devices))
        return chosen._any_interval(np.fmod(times_s, chosen.period_s))

    def next_online(self, time_s: float, among: np.ndarray | None = None) -> float | None:
        """The first time from ``time_s`` on at which a device (of mask ``among``) is online; None if never."""
        allowed = np.ones(self.size, dtype=bool) if among is None else among
        if (self.online(time_s) & allowed).any():
            return time_s
        owner = np.repeat(np.arange(self.size), np.diff(self.offsets))
        period = self.period_s[owner]
        wait = np.mod(self.begin - np.mod(time_s, period), period)
        # an interval that begins after the period's end, or ends before it begins, is never entered
        wait = wait[allowed[owner] & (self.end >= self.begin) & (self.begin < period)]
        return time_s + float(wait.min()) if len(wait) else None

    def _any_interval(self, phase: np.ndarray) -> np.ndarray:
        """Whether a device's phase of its period lies in one of its intervals."""
        counts = np.diff(self.offsets)
        spread = np.repeat(phase, counts)
        inside = (self.begin <= spread) & (spread <= self.end)
        hits = np.zeros(len(inside) + 1, dtype=np.int32)
        np.cumsum(inside, out=hits[1:])
        at_offsets = hits[self.offsets]
        return at_offsets[1:] > at_offsets[:-1]
