"""Why results do not count, as metrics keep it: short, on one line, and no more than a few different ones.

A reason may come from an executor, and a job may last for a thousand rounds: neither may swell the records.
"""

from collections import Counter

MOST = 20  # different reasons that a counter names; the rest are OTHERS
LONGEST = 120  # characters of a reason
OTHERS = "other reasons"


def one_line(text: str, longest: int = LONGEST) -> str:
    """``text`` as one line of printable characters, cut where it is too long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * longest]).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def count(reasons: "Counter[str]", reason: str, times: int = 1) -> None:
    """Count a reason, under its own name as long as there are few."""
    name = one_line(reason) or "no reason given"
    reasons[name if name in reasons or len(reasons) < MOST else OTHERS] += times
