"""What papers claim: one method's figure above another's. Compared seed by seed, as jobs of a seed share their data and
devices, and their participants where methods select them alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

Row = Mapping[str, Any]

FEWEST_SEEDS = 3
CONFIDENCE = 0.95
# points: what "no worse", "the same" and "no better" may differ by; the one margin that a paper names (HypeMeFed, 5.4)
EQUAL = 2.0
# figures that grow with every round: they say something at equal accuracy or at convergence alone
COSTS = ("TMACs", "TMACs forward", "network MB")
COMPARABLE = ("{} at equal accuracy", "{} at convergence")  # the columns of such figures


@dataclass(frozen=True)
class Order:
    """The figure ``column`` of ``more`` is above ``factor`` times that of ``less``, less ``slack``; ``data``: only on
    data sets whose names begin so; ``optional``: plays no part where there is no such row (k = 200 at small scale)."""

    column: str
    more: str
    less: str
    factor: float = 1.0
    slack: float = 0.0
    data: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Interval:
    """The mean of paired differences, and half the width of its confidence interval by Student's t."""

    mean: float
    half: float

    @property
    def sign(self) -> int:
        """1 or -1 where the interval excludes zero, else 0."""
        return int(np.sign(self.mean)) if abs(self.mean) > self.half else 0


def interval(differences: Sequence[float]) -> Interval | None:
    """Of paired differences, one a seed; None of fewer than ``FEWEST_SEEDS``. Differences that are all zero give the
    interval [0, 0], which does not exclude zero: ties decide nothing."""
    count = len(differences)
    if count < FEWEST_SEEDS:
        return None
    values = np.asarray(differences, dtype=np.float64)
    quantile = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2))
    return Interval(float(values.mean()), quantile * float(values.std(ddof=1)) / count**0.5)


@dataclass(frozen=True)
class Compared:
    """An order on one data set: its margins, positive where it is true, by ``seeds``, and both rows; ``column`` is the
    figure that was compared."""

    data: str
    seeds: Sequence[int]
    margins: Sequence[float]
    more: Row
    less: Row
    column: str

    @property
    def means(self) -> tuple[float, float] | None:
        """Both rows' means over the seeds that they have in common; None where there are none."""
        if not self.seeds:
            return None
        more, less = (common_values(row, self.column, self.seeds) for row in (self.more, self.less))
        return sum(more) / len(more), sum(less) / len(less)


def common_values(row: Row, column: str, seeds: Sequence[int]) -> list[float]:
    """A row's figures of these seeds, in their order."""
    return [float(row["figures"][column]["values"][row["seeds"].index(seed)]) for seed in seeds]


def _margin(more: float, less: float, order: Order) -> float:
    """Zero where both sides are equal but for rounding."""
    margin = more - order.factor * less + order.slack
    return 0.0 if abs(margin) <= 1e-12 * max(abs(more), abs(order.factor * less)) else margin


def published_margin(order: Order, one: Compared, published: Mapping[str, Mapping[str, float]]) -> float | None:
    """The margin of the paper's figures: those of the rows, else those of ``published`` by label; None without both."""
    both = [(row.get("paper") or published.get(row["label"], {})).get(one.column) for row in (one.more, one.less)]
    more, less = both
    return None if more is None or less is None else _margin(more, less, order)


def comparable_column(column: str, rows: Sequence[Row]) -> str | None:
    """The column to compare these rows by: itself, or of a cost, the one at equal accuracy or at convergence that they
    all have; None where there is none."""
    names = [form.format(column) for form in COMPARABLE] if column in COSTS else [column]
    return next((name for name in names if all(name in row["figures"] for row in rows)), None)


def compared(order: Order, rows: Sequence[Row]) -> list[Compared]:
    """The order on each data set where both have finished jobs of the same seed. A cost that was measured at equal
    rounds alone is compared all the same: its ``column`` says so."""
    by_name = {(row["data"], row["label"]): row for row in rows}
    results = []
    for data in dict.fromkeys(data for data, _ in by_name if data.startswith(order.data)):
        more, less = by_name.get((data, order.more)), by_name.get((data, order.less))
        if more is None or less is None:
            continue
        column = comparable_column(order.column, (more, less)) or order.column
        if column not in more["figures"] or column not in less["figures"]:
            continue
        both = sorted(set(more["seeds"]) & set(less["seeds"]))
        values = [common_values(row, column, both) for row in (more, less)]
        margins = [_margin(a, b, order) for a, b in zip(*values, strict=True)]
        results.append(Compared(data, both, margins, more, less, column))
    return results


def differences(orders: Sequence[Order], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Paired differences of the orders as JSON values; factor and slack play no part."""
    entries = []
    for order in orders:
        for one in compared(Order(order.column, order.more, order.less, data=order.data), rows):
            if one.seeds:
                values = np.array(one.margins)
                entries.append({
                    "column": one.column, "more": order.more, "less": order.less, "data": one.data,
                    "seeds": list(one.seeds), "values": values.tolist(), "mean": float(values.mean()),
                    "std": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
                })  # fmt: skip
    return entries


def number(value: float, digits: int = 4, sign: str = "") -> str:
    """So many digits, those before the point whole, and no exponent for what people read; ``sign``: "+" for both."""
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= min(1000, 10**digits):
        return f"{value:{sign},.0f}"
    text = f"{value:{sign}.{digits}g}"
    if "e" not in text:
        return text
    return f"{value:{sign}.{digits - 1 - int(text.partition('e')[2])}f}".rstrip("0")


def limits(between: Interval | None) -> str:
    """An interval's ends as people read them; a dash for none."""
    return "–" if between is None else f"{number(between.mean - between.half)} to {number(between.mean + between.half)}"
