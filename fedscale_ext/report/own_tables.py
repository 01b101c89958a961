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
    """The same for people: what stands above a table (``Device classes`` for device_classes) -> titles and cells."""
    return {_heading(name): _told(rows) for name, rows in method_tables(summary).items()}


def _heading(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _told(rows: Sequence[Mapping[str, Any]]) -> Told:
    head = [key.replace("_", " ") for key in rows[0]]
    return head, [[_figure(value) for value in row.values()] for row in rows]


def _figure(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
