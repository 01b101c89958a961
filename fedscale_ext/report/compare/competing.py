"""Which arms of a comparison compete in which figure, and which one is the best of it."""

import math
from collections.abc import Sequence
from typing import Any

from fedscale_ext.report.compare.arms import Arm
from fedscale_ext.report.compare.columns import Column

OVERCOMMITMENT = "overcommitment"
_OF_ROUNDS = {"macs", "network", "time"}  # figures that grow with each round
_OF_DEVICES = {"macs", "network", "round_mb", "suite", "served", "time"}  # that depend on what devices afford
_OF_UPDATES = {"macs", "network", "round_mb"}  # that count the updates that were accepted
# mask_test changes these
_OF_MASKED_TESTS = {"accuracy", "tuned", "samples", "iqr", "worst_tenth", "balanced", "macro_f1", "auc"}
_RELATIVE = 1e-9  # values that differ by no more than this are equal but for rounding
_ABSOLUTE = 1e-12  # the same beside zero: far below a client's accuracy, a byte in MB and a second


def conditions(arm: Arm, figure: Column) -> tuple[Any, ...]:
    """Conditions that arms must share to compete in a figure.

    These are the samples (data sets of one name may hold others) and whether they are generated, the rounds that
    were requested, whether models are personal, whether clients train what their devices do not afford and, for the
    figures of such tests, whether tests mask logits. Costs also need the same rounds done, and the same devices,
    which must afford the same. They need the same overcommitment, since clients that are too slow to count cost
    nothing. Neither do clients whose update failed or was refused: arms with and without many of them do not
    compete in costs.
    """
    job = arm.jobs[0]
    done = sorted(job.rounds_done for job in arm.jobs) if figure.key in _OF_ROUNDS else []
    devices = job.devices if figure.key in _OF_DEVICES else {}
    rounds = tuple(dict.fromkeys(done))
    costs = figure.key in _OF_ROUNDS or figure.key in _OF_DEVICES
    overcommitment = job.settings.get(OVERCOMMITMENT) if costs else None
    complete = arm.uncounted == 0 if figure.key in _OF_UPDATES else None
    masked = arm.masked and figure.key in _OF_MASKED_TESTS
    afford = arm.afford if figure.key in _OF_DEVICES else None
    shared = arm.digest, arm.generated, job.rounds_asked, arm.personal, arm.beyond_capacity > 0, masked
    return *shared, rounds, overcommitment, complete, afford, *sorted(devices.items())


def best(arms: Sequence[Arm], figure: Column) -> set[int]:
    """Indices of the arms with the best mean of a figure among those that have ended and compete with them
    (:func:`conditions`); none where no arms compete. Values that differ only in rounding are equal.

    Arms that diverged or only guess (:attr:`Arm.disqualified`) are never the best; others may be better than they are.
    """
    result: set[int] = set()
    conditions_of = [conditions(arm, figure) for arm in arms]
    for shared in set(conditions_of):
        means = {index: mean for index, arm in enumerate(arms) if conditions_of[index] == shared and not arm.state
                 for mean in [arm.mean(figure.key)] if mean is not None}  # fmt: skip
        valid = {index: mean for index, mean in means.items() if arms[index].disqualified is None}
        if not valid or figure.more_is_better is None:
            continue
        top = (max if figure.more_is_better else min)(valid.values())
        ties = {index for index, mean in valid.items() if equal_values(mean, top)}
        worse = (
            top > mean if figure.more_is_better else top < mean
            for mean in means.values()
            if not equal_values(mean, top)
        )
        if any(worse):
            result |= ties
    return result


def equal_values(one: float, other: float) -> bool:
    """Whether two values of a figure differ by no more than the rounding of their sums."""
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
