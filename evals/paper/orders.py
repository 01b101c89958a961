"""What papers claim: one method's figure above another's. Compared seed by seed, as jobs of a seed share their data,
devices and participants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Order:
    """The figure ``column`` of ``more`` is above ``factor`` times that of ``less``, less ``slack``; ``data``: only on
    data sets whose names begin so; ``optional``: plays no part where there is no such row (k = 200 at small scale);
    mean margins below ``noise`` decide nothing."""

    column: str
    more: str
    less: str
    factor: float = 1.0
    slack: float = 0.0
    data: str = ""
    optional: bool = False
    noise: float = 0.0


@dataclass(frozen=True)
class Compared:
    """An order on one data set: its margins, positive where it is true, by ``seeds``, and both rows."""

    data: str
    seeds: Sequence[int]
    margins: Sequence[float]
    more: Row
    less: Row


def compared(order: Order, rows: Sequence[Row]) -> list[Compared]:
    """The order on each data set where both have finished jobs of the same seed."""
    found = {(row["data"], row["label"]): row for row in rows if order.column in row["figures"]}
    results = []
    for data in dict.fromkeys(data for data, _ in found if data.startswith(order.data)):
        more, less = found.get((data, order.more)), found.get((data, order.less))
        if more is None or less is None:
            continue
        both = sorted(set(more["seeds"]) & set(less["seeds"]))
        values = [[row["figures"][order.column]["values"][row["seeds"].index(seed)] for seed in both]
                  for row in (more, less)]  # fmt: skip
        margins = [a - order.factor * b + order.slack for a, b in zip(*values, strict=True)]
        results.append(Compared(data, both, margins, more, less))
    return results


def differences(orders: Sequence[Order], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Paired differences of the orders as JSON values; factor and slack play no part."""
    found = []
    for order in orders:
        for one in compared(Order(order.column, order.more, order.less, data=order.data), rows):
            if one.seeds:
                values = np.array(one.margins)
                found.append({
                    "column": order.column, "more": order.more, "less": order.less, "data": one.data,
                    "seeds": list(one.seeds), "values": values.tolist(), "mean": float(values.mean()),
                    "std": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
                })  # fmt: skip
    return found


def number(value: float) -> str:
    """Four digits, no exponent for what people read."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
