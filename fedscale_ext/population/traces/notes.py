"""Notes on traces whose values look wrong: seconds for milliseconds, bit/s for kbit/s, times beyond the period."""

from dataclasses import dataclass

import numpy as np

from fedscale_ext.population.traces.columns import AvailabilityTrace, CapacityTrace

_FACTOR = 10.0  # devices may be so many times as slow or as fast as FedScale's without a word
_HOUR_S, _DAY_S = 3600.0, 86400.0
_MOST_DAYS = 60
_FEW = 0.1  # share of intervals that may go beyond the period, or end before they begin, without a word


@dataclass(frozen=True)
class _Column:
    """A column of FedScale's capacity trace: its unit, and the range of its values there."""

    name: str
    unit: str
    low: float
    high: float

    def has(self, value: float) -> bool:
        """Whether a value is in the range, or at most ten times outside it."""
        return self.low / _FACTOR <= value <= self.high * _FACTOR


_COMPUTATION = _Column("computation", "ms per sample", 15, 199)
_COMMUNICATION = _Column("communication", "kbit/s", 1016, 204_000)


def capacity_note(trace: CapacityTrace, source: str) -> str | None:
    """Return a sentence if the median of a column is more than tenfold outside the range of FedScale's own devices.

    Args:
        trace: The devices.
        source: Name of the file, for the sentence.

    """
    columns = ((_COMPUTATION, trace.computation_ms), (_COMMUNICATION, trace.communication_kbps))
    medians = [float(np.median(values)) for _, values in columns]
    odd = [
        f"the median {column.name} is {_described(median, values)}, FedScale's devices have "
        f"{_number(column.low)} to {_number(column.high)} {column.unit}"
        for (column, values), median in zip(columns, medians, strict=True)
        if not column.has(median)
    ]
    if not odd:
        return None
    swapped = len(odd) == 2 and _COMPUTATION.has(medians[1]) and _COMMUNICATION.has(medians[0])
    advice = "the two columns look swapped" if swapped else "check the unit"
    return f"{source}: {'; '.join(odd)}: {advice}"


def availability_note(trace: AvailabilityTrace, source: str) -> str | None:
    """Return a sentence if the median period is below an hour or above 60 days, or if intervals go beyond it or back.

    Args:
        trace: The online intervals.
        source: Name of the file, for the sentence.

    """
    median, period = float(np.median(trace.finish_time)), np.repeat(trace.finish_time, np.diff(trace.offsets))
    odd = []
    if not _HOUR_S <= median <= _MOST_DAYS * _DAY_S:
        odd.append(
            f"the median finish_time is {_described(median, trace.finish_time)}, in seconds a period of less "
            f"than an hour or more than {_MOST_DAYS} days: check the unit"
        )
    beyond = int((trace.inactive > period).sum())
    if beyond > _FEW * len(period):
        odd.append(
            f"{beyond:,} of {len(period):,} intervals end after their client's finish_time, and what is beyond it "
            "never counts: check finish_time"
        )
    backward = int((trace.active > trace.inactive).sum())
    if backward > _FEW * len(period):
        odd.append(
            f"{backward:,} of {len(period):,} intervals end before they begin and never count: active and inactive "
            "look swapped"
        )
    return f"{source}: {'; '.join(odd)}" if odd else None


def _described(median: float, values: np.ndarray) -> str:
    return f"{_number(median)} ({_number(float(values.min()))} to {_number(float(values.max()))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
