"""The tables that a method adds to a job's summary: its tiers, its types of devices, its stages."""

from collections.abc import Mapping, Sequence
from typing import Any

Told = tuple[list[str], list[list[str]]]


def method_tables(summary: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Further figures of a method that are lists of objects, by name: their numbers and texts."""
    found = {}
    for name, rows in (summary.get("results") or {}).items():
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            keys = [key for key, value in rows[0].items() if not isinstance(value, list | dict)]
            found[name] = [{key: row.get(key) for key in keys} for row in rows]
    return found


def told_tables(summary: Mapping[str, Any]) -> dict[str, Told]:
    """The same for people: what stands above a table (``Device classes`` for device_classes) -> titles and cells.

    Accuracies are per cent, and a round in which something settled is marked where it is that of the last test, at
    which everything has: the job may have been too short.
    """
    last = summary["rounds"]
    return {name.replace("_", " ").capitalize(): _told(rows, last) for name, rows in method_tables(summary).items()}


def _told(rows: Sequence[Mapping[str, Any]], last: int) -> Told:
    head = [key.replace("_", " ") for key in rows[0]]
    return head, [[_cell(key, value, last) for key, value in row.items()] for row in rows]


def _cell(key: str, value: Any, last: int) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return percent(value) if "accuracy" in key.split("_") else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}" + (" (last)" if key == "settled_round" and value == last else "")
    return str(value)


def percent(value: float | None) -> str:
    """A share in [0, 1] as per cent; a dash where there is none."""
    return "–" if value is None else f"{100 * value:.2f} %"
