"""What a trace is like, in figures: quantiles over devices, histograms, who is online at which hour."""

from dataclasses import dataclass

import numpy as np

from fedscale_ext.population.availability import Availability
from fedscale_ext.population.columns import AvailabilityTrace, CapacityTrace

QUANTILES = (0, 5, 25, 50, 75, 95, 100)
_DAY_H = 24
_MAX_DAYS = 7


@dataclass(frozen=True)
class Spread:
    """Of one figure over devices: its name with the unit, and its ``quantiles`` at :data:`QUANTILES` percent."""

    name: str
    quantiles: list[float]


@dataclass(frozen=True)
class Online:
    """Of an availability trace, per client: ``share`` of its period that it is online, ``intervals``, ``period_h``; and
    ``minutes`` of each interval, ``by_hour`` float64[24] the mean fraction of clients that are online."""

    share: np.ndarray
    intervals: np.ndarray
    period_h: np.ndarray
    minutes: np.ndarray
    by_hour: np.ndarray


def capacity_spreads(trace: CapacityTrace) -> list[Spread]:
    """Latency and bandwidth over devices."""
    return [_spread("ms per sample", trace.computation_ms), _spread("kbit/s", trace.communication_kbps)]


def online(trace: AvailabilityTrace) -> Online:
    """Figures of an availability trace. Intervals in which FedScale never finds a client are left out, overlaps count
    once, and hours are those of the trace's clock, in the middle of each, over at most seven days."""
    owner = np.repeat(np.arange(len(trace)), np.diff(trace.offsets))
    period = trace.finish_time[owner]
    real = (trace.active <= trace.inactive) & (trace.active < period)
    begin, owner = trace.active[real], owner[real]
    end = np.minimum(trace.inactive[real], period[real])
    order = np.lexsort((begin, owner))
    begin, end, owner = begin[order], end[order], owner[order]
    shift = owner * (2 * trace.finish_time.max())  # of a client, so that one running maximum serves all
    reached = np.maximum.accumulate(end + shift) - shift if len(end) else end
    since = begin.copy()
    since[1:] = np.where(owner[1:] == owner[:-1], np.maximum(begin[1:], reached[:-1]), begin[1:])
    seconds = np.bincount(owner, weights=np.maximum(end - since, 0), minlength=len(trace))
    days = int(np.clip(np.ceil(trace.finish_time.max() / 86400), 1, _MAX_DAYS))
    clients = Availability(trace, len(trace))
    hours = [clients.online((hour + 0.5) * 3600).mean() for hour in range(days * _DAY_H)]
    return Online(
        seconds / trace.finish_time,
        np.bincount(owner, minlength=len(trace)),
        trace.finish_time / 3600,
        (end - begin) / 60,
        np.reshape(hours, (days, _DAY_H)).mean(axis=0),
    )


def online_spreads(figures: Online) -> list[Spread]:
    """Its figures over clients, and over intervals for their length."""
    spreads = [_spread("% of time online", 100 * figures.share), _spread("intervals", figures.intervals)]
    if len(figures.minutes):
        spreads.append(_spread("minutes each", figures.minutes))
    return [*spreads, _spread("period, hours", figures.period_h)]


def histogram(values: np.ndarray, bins: int, *, log: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Counts and edges of equal bins, of equal ratio with ``log`` (positive values)."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        return np.array([len(values)]), np.array([low, high])
    edges = np.geomspace(low, high, bins + 1) if log else np.linspace(low, high, bins + 1)
    edges[0], edges[-1] = low, high  # rounding leaves nobody out
    return np.histogram(values, edges)[0], edges


def _spread(name: str, values: np.ndarray) -> Spread:
    return Spread(name, np.quantile(values, np.array(QUANTILES) / 100).tolist())
