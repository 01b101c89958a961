"""Measurements as JSON lines, appended as they come: an interrupted comparison goes on where it was."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Key = tuple[str, str, int, int]


def key(line: dict[str, Any]) -> Key:
    """What makes a measurement the same one: model, row, repetition and timed rounds."""
    return line["model"], line["row"], line["repetition"], line["rounds"]


def read(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a file; none where it is absent. A torn last line is what a killed run left."""
    if not path.is_file():
        return []
    *whole, _torn = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in whole]


def append(path: Path, line: dict[str, Any]) -> None:
    """Add a line, on disk before this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(line).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def start_anew(path: Path) -> None:
    """Put an earlier file aside as results.previous.jsonl."""
    if path.is_file():
        path.replace(path.with_name("results.previous.jsonl"))


def finished(lines: Iterable[dict[str, Any]]) -> set[Key]:
    """The measurements that need not be repeated."""
    return {key(line) for line in lines if line.get("status") == "ok"}


def plan(models: list[str], rows: list[str], repetitions: int, rounds: int) -> list[Key]:
    """Every measurement in order: of one model each row in turn, beginning with another row each repetition."""
    return [
        (model, rows[(place + repetition) % len(rows)], repetition, rounds)
        for repetition in range(repetitions)
        for model in models
        for place in range(len(rows))
    ]
