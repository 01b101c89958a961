"""When accuracies have converged.

:func:`stalled` is FedTrans's stop rule (Zhu et al., MLSys 2024, appendix A.1): "the accuracy not improving by more than
1% over 10 consecutive rounds". Its 1% are read as a hundredth of all answers. :func:`settled` is for Moss (IMWUT 2025:
"stable accuracy where further training does not significantly improve", which names no numbers).
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.accuracy import accuracy

_TOLERANCE = 0.005  # half a percentage point
_WINDOW = 3  # evaluations


def settled(accuracies: Sequence[float]) -> int | None:
    """Place of the first evaluation after which the accuracy (in [0, 1]) rises by half a point at most.

    Accuracies are means of three evaluations, at the beginning of those that there are. The last one always
    qualifies, so that a place at the end says that the job may have been too short. Evaluations that tested nobody
    (NaN) are passed over. None where no other is there.
    """
    tested = np.flatnonzero(~np.isnan(np.asarray(accuracies, dtype=np.float64)))
    if not len(tested):
        return None
    values = np.asarray(accuracies, dtype=np.float64)[tested]
    smooth = np.array([values[max(0, end - _WINDOW) : end].mean() for end in range(1, len(values) + 1)])
    highest_from = np.maximum.accumulate(smooth[::-1])[::-1]
    return int(tested[np.argmax(highest_from - smooth <= _TOLERANCE + 1e-12)])


def mean_accuracies(records: Iterable[RoundRecord]) -> list[tuple[int, float]]:
    """(round, clients' mean accuracy in [0, 1]) of each evaluation."""
    return [(record.round, accuracy(record.evaluation).mean) for record in records if record.evaluation is not None]


def stalled(seen: Sequence[tuple[int, float]], now: int, gain: float, patience: int) -> bool:
    """Tell whether accuracy has stalled by round ``now``.

    It has stalled if the best accuracy of the last ``patience`` rounds is at most ``gain`` above the best one before.
    ``seen`` holds (round, accuracy in [0, 1]) of each evaluation. The answer is False unless both periods have
    evaluations.
    """
    before = [value for round, value in seen if round <= now - patience]
    since = [value for round, value in seen if now - patience < round <= now]
    return bool(before and since) and max(since) <= max(before) + gain


def converged_round(
    seen: Sequence[tuple[int, float]], gain: float, patience: int, unit: Literal["rounds", "evaluations"] | str
) -> int | None:
    """The first evaluated round at which accuracy has stalled for ``patience`` rounds, or evaluations; None: at none.

    ``seen`` as for :func:`stalled`, by rising round; evaluations that tested nobody (NaN) are passed over.
    """
    tested = [(round, value) for round, value in seen if not math.isnan(value)]
    numbers = range(len(tested)) if unit == "evaluations" else [round for round, _ in tested]
    best_before, begin = -math.inf, 0  # of the evaluations before the last ``patience``, which begin at an index
    since: deque[int] = deque()  # indices; without those that a later one reaches, so the best comes first
    for index, (round, value) in enumerate(tested):
        while since and tested[since[-1]][1] <= value:
            since.pop()
        since.append(index)
        while begin < index and numbers[begin] <= numbers[index] - patience:
            best_before = max(best_before, tested[begin][1])
            begin += 1
        while since[0] < begin:
            since.popleft()
        if begin and tested[since[0]][1] <= best_before + gain:
            return round
    return None
