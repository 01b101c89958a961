"""When accuracies have settled (Moss, IMWUT 2025: "stable accuracy where further training does not significantly
improve", which names no numbers)."""

from collections.abc import Sequence

import numpy as np

_TOLERANCE = 0.005  # half a percentage point
_WINDOW = 3  # evaluations


def settled(accuracies: Sequence[float]) -> int | None:
    """Place of the first evaluation after which the accuracy (in [0, 1]) rises by half a point at most.

    Accuracies are means of three evaluations, at the beginning of those that there are. The last one always
    qualifies, so that a place at the end says that the job may have been too short. None without evaluations.
    """
    if not len(accuracies):
        return None
    values = np.asarray(accuracies, dtype=np.float64)
    smooth = np.array([values[max(0, end - _WINDOW) : end].mean() for end in range(1, len(values) + 1)])
    highest_from = np.maximum.accumulate(smooth[::-1])[::-1]
    return int(np.argmax(highest_from - smooth <= _TOLERANCE + 1e-12))
