"""The floors beside a table of results: what a linear model and a central one reach on its data sets."""

from collections.abc import Mapping, Sequence
from typing import Any

from evals.paper.orders import Row, number

LINEAR = "linear model on raw inputs"
CLIENTS, ALL = "accuracy %", "global %"  # a floor's figures: the mean over clients, and on all test samples together
# which of them a system's figure is to be held beside
TESTED_ON: Mapping[str, str] = {
    "accuracy %": CLIENTS,
    "mean %": CLIENTS,
    "mean of clients %": CLIENTS,
    "mean personalised %": CLIENTS,
    "test accuracy %": ALL,
    "mean global %": ALL,
    "global, late %": ALL,
    "global %": ALL,
}


def central_label(model: str) -> str:
    """The row of a network that is trained on all clients' samples."""
    return f"central model, {model}"


def floors_name(scale: str) -> str:
    """Name of the table of floors at a scale."""
    return f"floors_{scale}"


def linear_floor(rows: Sequence[Row], data: str, column: str) -> float | None:
    """The linear model's accuracy on a data set, tested as the figure ``column`` is; None where there is none."""
    for row in rows:
        if row["label"] == LINEAR and row["data"] == data and column in TESTED_ON:
            return float(row["figures"][TESTED_ON[column]]["mean"])
    return None


def above_both(rows: Sequence[Row], column: str, more: Row, less: Row) -> float | None:
    """The linear model's accuracy where it is above those of both systems, by ``column``, or where that is no accuracy,
    by the first that both have."""
    columns = [column] if column in TESTED_ON else [
        name for name in TESTED_ON if name in more["figures"] and name in less["figures"]
    ]  # fmt: skip
    floor = linear_floor(rows, more["data"], columns[0]) if columns else None
    if floor is None:
        return None
    best = max(float(one["figures"][columns[0]]["mean"]) for one in (more, less))
    return floor if floor > best else None


def floor_lines(rows: Sequence[Row]) -> list[str]:
    """Markdown of the floors, those that were not run with the reason; empty where there are none."""
    if not rows:
        return []
    lines = ["", "Floors, trained on all clients' samples together (mean ± standard deviation over seeds):", ""]
    lines += ["| | data | seeds | mean over clients % | all test samples % |", "|---|---|---|---|---|"]
    for row in rows:
        seeds = ", ".join(map(str, row["seeds"])) or "; ".join(row["failed"])
        cells = [row["label"], row["data"], seeds, *(_cell(row, name) for name in (CLIENTS, ALL))]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _cell(row: Mapping[str, Any], name: str) -> str:
    figure = row["figures"].get(name)
    if figure is None:
        return "–"
    spread = f" ± {number(figure['std'])}" if len(figure["values"]) > 1 else ""
    return f"{number(figure['mean'])}{spread}"
