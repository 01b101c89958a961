"""`--profile`: where the time of our rounds goes, from what the runtime notes in metrics.jsonl."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from fedscale_ext.driver.tables import print_table

AGGREGATOR, EXECUTORS = "seconds", "executor_seconds"


def read(folder: Path) -> list[dict[str, Any]]:
    """The round records of the job whose measurement left ``folder``."""
    path = next(folder.glob("logs/*/run/metrics.jsonl"))
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def means(records: list[dict[str, Any]], name: str) -> dict[str, float]:
    """Mean seconds of each phase over the rounds that have it, in the order of the first round."""
    phases: dict[str, list[float]] = {}
    for record in records:
        for phase, seconds in (record.get(name) or {}).items():
            phases.setdefault(phase, []).append(float(seconds))
    return {phase: sum(values) / len(records) for phase, values in phases.items()}


def rows(records: list[dict[str, Any]], executors: int) -> list[tuple[str, str, str]]:
    """(phase, mean seconds, share): the aggregator's of its round, the executors' of all their time in it."""
    wall_s = sum(record["wall_s"] for record in records) / len(records)
    result = []
    for who, name, whole in (("aggregator", AGGREGATOR, wall_s), ("executors", EXECUTORS, wall_s * executors)):
        found = means(records, name)
        if found:
            found["not noted"] = max(0.0, whole - sum(found.values()))
        result += [(f"{who}: {phase}", f"{s:.3f}", f"{100 * s / whole:.1f} %") for phase, s in found.items()]
    return result


def show(out: Console, model: str, records: list[dict[str, Any]], executors: int) -> None:
    """Print a table for rounds that train only, and one for the first and last, which test too."""
    for title, chosen in (("training", records[1:-1]), ("training and tests", [records[0], records[-1]])):
        wall_s = sum(record["wall_s"] for record in chosen) / len(chosen)
        heading = f"\n{model}, rounds with {title}: {wall_s:.3f} s a round (mean of {len(chosen)})"
        out.print(heading, markup=False, highlight=False)
        for name in (AGGREGATOR, EXECUTORS):
            if not any(record.get(name) for record in chosen):
                text = f"metrics.jsonl has no {name!r}: this version does not note the phases of that side"
                out.print(text, markup=False, highlight=False, soft_wrap=True)
        found = rows(chosen, executors)
        if found:
            print_table(out, ("phase", "s/round", "share"), found)
