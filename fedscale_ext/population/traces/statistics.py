"""Statistics of a trace: quantiles over devices, histograms, and the share of clients online by hour."""

from dataclasses import dataclass

import numpy as np

from fedscale_ext.population.traces.columns import AvailabilityTrace, CapacityTrace

QUANTILES = (0, 5, 25, 50, 75, 95, 100)
_DAY_H = 24
_MAX_DAYS = 7


@dataclass(frozen=True)
class Spread:
    """Quantiles of a quantity over devices at :data:`QUANTILES` percent; ``name`` includes the unit."""

    name: str
    quantiles: list[float]


@dataclass(frozen=True)
class Online:
    """Statistics of an availability trace.

    Attributes:
        share: Share of each client's period that it is online, float64 [clients].
        intervals: Number of each client's intervals, int64 [clients].
        period_h: Each client's period in hours, float64 [clients].
        minutes: Length of each interval in minutes, float64 [intervals].
        by_hour: Mean share of clients that are online, float64 [24].

    """

    share: np.ndarray
    intervals: np.ndarray
    period_h: np.ndarray
    minutes: np.ndarray
    by_hour: np.ndarray


def capacity_spreads(trace: CapacityTrace) -> list[Spread]:
    """Return the quantiles of latency and bandwidth over devices."""
    return [_spread("ms per sample", trace.computation_ms), _spread("kbit/s", trace.communication_kbps)]


def reached(trace: AvailabilityTrace) -> np.ndarray:
    """Return which intervals FedScale's clients are ever online in, bool [intervals]."""
    period = np.repeat(trace.finish_time, np.diff(trace.offsets))
    return np.asarray((trace.active <= trace.inactive) & (trace.active < period))


def online(trace: AvailabilityTrace) -> Online:
    """Compute the statistics of an availability trace.

    Intervals in which FedScale's clients are never online are left out. Overlaps count once. Hours are those of the
    trace's clock, over at most seven days.
    """
    owner = np.repeat(np.arange(len(trace)), np.diff(trace.offsets))
    period = trace.finish_time[owner]
    real = reached(trace)
    begin, owner = trace.active[real], owner[real]
    end = np.minimum(trace.inactive[real], period[real])
    order = np.lexsort((begin, owner))
    begin, end, owner = begin[order], end[order], owner[order]
    shift = owner * (2 * trace.finish_time.max())  # offset per client, so that one running maximum serves all
    until_now = np.maximum.accumulate(end + shift) - shift if len(end) else end
    since = begin.copy()
    since[1:] = np.where(owner[1:] == owner[:-1], np.maximum(begin[1:], until_now[:-1]), begin[1:])
    length = np.maximum(end - since, 0)
    seconds = np.bincount(owner, weights=length, minlength=len(trace))
    days = int(np.clip(np.ceil(trace.finish_time.max() / 86400), 1, _MAX_DAYS))

    def until(time_s: float) -> np.ndarray:
        """Seconds that each client is online before a time, [clients]: of whole periods, and of the last one."""
        periods, rest = np.divmod(time_s, trace.finish_time)
        part = np.clip(rest[owner] - since, 0, length)
        return periods * seconds + np.bincount(owner, weights=part, minlength=len(trace))

    spent = np.array([until(3600 * hour).sum() for hour in range(days * _DAY_H + 1)])
    return Online(
        seconds / trace.finish_time,
        np.bincount(owner, minlength=len(trace)),
        trace.finish_time / 3600,
        (end - begin) / 60,
        np.reshape(np.diff(spent) / (3600 * len(trace)), (days, _DAY_H)).mean(axis=0),
    )


def online_spreads(figures: Online) -> list[Spread]:
    """Return quantiles over clients, and over intervals for their length."""
    spreads = [_spread("% of time online", 100 * figures.share), _spread("intervals", figures.intervals)]
    if len(figures.minutes):
        spreads.append(_spread("minutes each", figures.minutes))
    return [*spreads, _spread("period, hours", figures.period_h)]


def histogram(values: np.ndarray, bins: int, *, log: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return counts and edges of equal bins, or with ``log`` of bins of equal ratio (positive values only)."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        return np.array([len(values)]), np.array([low, high])
    edges = np.geomspace(low, high, bins + 1) if log else np.linspace(low, high, bins + 1)
    edges[0], edges[-1] = low, high  # so that rounding leaves no value out
    return np.histogram(values, edges)[0], edges


def _spread(name: str, values: np.ndarray) -> Spread:
    return Spread(name, np.quantile(values, np.array(QUANTILES) / 100).tolist())
