"""Why clients failed and results do not count, as metrics keep it: short, on one line, few different ones.

A reason may come from an executor, and a job may last for a thousand rounds: neither may swell the records.
"""

from collections import Counter

from fedscale_ext.core.errors import one_line

MOST = 20  # different reasons that a counter names; the rest are OTHERS
LONGEST = 120  # characters of a reason
OTHERS = "other reasons"
TRAINING_DIVERGED = "training diverged"  # in the sentence with which a job fails for that
_DIVERGED = "diverged: "


def count(reasons: "Counter[str]", reason: str, times: int = 1) -> None:
    """Count a reason, under its own name as long as there are few."""
    name = one_line(reason, LONGEST) or "no reason given"
    reasons[name if name in reasons or len(reasons) < MOST else OTHERS] += times


def diverged(what: str) -> str:
    """Return the reason of a client whose numbers are not finite; ``what`` is a clause that names them."""
    return f"{_DIVERGED}{what}"


def is_divergence(reason: str) -> bool:
    """Whether a client failed for a reason of :func:`diverged`."""
    return reason.startswith(_DIVERGED)


def tells_divergence(sentence: str) -> bool:
    """Whether a job failed because its training diverged, by the sentence that it ended with."""
    return TRAINING_DIVERGED in sentence
