"""The tables that a method adds to a job's summary: its tiers, its types of devices, its stages."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedscale_ext.util.quantities import percent

TextTable = tuple[list[str], list[list[str]]]
_UNITS = {"mb": "MB", "j": "J"}
# columns that are accuracies, or how these spread over clients, which is all that "fairness" tells
_SPREAD = re.compile("mean|std|worst")
_ACCURACY = re.compile(f"(.+_)?(accuracy(_.+)?|client_({_SPREAD.pattern}))")


def method_tables(summary: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Further figures of a method that are lists of objects, by name: their numbers and texts."""
    tables = {}
    for name, rows in (summary.get("results") or {}).items():
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            nested = {key for row in rows for key, value in row.items() if isinstance(value, list | dict)}
            keys = [key for key in dict.fromkeys(key for row in rows for key in row) if key not in nested]
            tables[name] = [{key: row.get(key) for key in keys} for row in rows]
    return tables


def text_tables(summary: Mapping[str, Any]) -> dict[str, TextTable]:
    """A method's tables as text: heading (``Device classes`` for device_classes) -> column titles and cells.

    Accuracies are per cent. A round in which an accuracy settled is marked "(last)" where it is the round of the last
    test: the job may have been too short.
    """
    last = summary["rounds"]
    return {name.replace("_", " ").capitalize(): _text_table(name, rows, last)
            for name, rows in method_tables(summary).items()}  # fmt: skip


def _text_table(name: str, rows: Sequence[Mapping[str, Any]], last: int) -> TextTable:
    accuracies = _SPREAD if name == "fairness" else _ACCURACY
    cells = [[_cell(key, value, accuracies, last) for key, value in row.items()] for row in rows]
    return [_title(key) for key in rows[0]], cells


def _title(key: str) -> str:
    """``one way MB`` for one_way_mb."""
    *words, last = key.split("_")
    return " ".join([*words, _UNITS.get(last, last) if words else last])


def _cell(key: str, value: Any, accuracies: re.Pattern[str], last: int) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return percent(value) if accuracies.fullmatch(key) else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}" + (" (last)" if key == "settled_round" and value == last else "")
    return str(value)
