"""The course of accuracy over rounds, time or MACs: its axes, and its mean over seeds."""

from collections.abc import Sequence
from itertools import accumulate, islice

import numpy as np

from fedscale_ext.core.types import RoundRecord

Curve = Sequence[tuple[float, float]]
"""Points (x, accuracy) of a job by rising x."""


def time_unit(duration_s: float) -> tuple[str, float]:
    """Return the unit in which a plot shows so long a time, and its seconds."""
    if duration_s >= 2 * 3600:
        return "h", 3600.0
    return ("min", 60.0) if duration_s >= 120 else ("s", 1.0)


def macs_by_round(records: Sequence[RoundRecord]) -> dict[int, float]:
    """Return the MACs of training of all rounds up to each one, by the round's number."""
    sums = accumulate((record.training_macs for record in records), initial=0.0)
    return dict(zip([record.round for record in records], islice(sums, 1, None), strict=True))


def mean_course(lines: Sequence[Curve], *, ended: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean over seeds at every x at which a seed was tested.

    Seeds may be tested at other places, as those of a job that was resumed with more rounds. Between its tests, a seed
    is on the straight line that a plot draws.

    Args:
        lines: The points of each seed, at least one.
        ended: Whether the jobs have ended. A seed that ended early then keeps its last accuracy, so that the course
            ends at the mean of all last accuracies. Otherwise the course ends where the first seed does.

    Returns:
        x, mean and standard deviation (0 for a single seed), float64 [points]; x begins where all seeds have begun.

    """
    begin = max(line[0][0] for line in lines)
    end = (max if ended else min)(line[-1][0] for line in lines)
    x = np.unique([at for line in lines for at, _ in line])
    x = x[(begin <= x) & (x <= end)]
    y = np.array([np.interp(x, *np.array(line).T) for line in lines])
    return x, y.mean(0), y.std(0, ddof=1) if len(lines) > 1 else np.zeros(len(x))
