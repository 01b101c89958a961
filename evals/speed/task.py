"""What a measurement asks of a row, and how the row says what it took. Needs neither torch nor the package."""

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLIENTS, STEPS, BATCH, RATE = 100, 20, 10, 0.05
SAMPLES = STEPS * BATCH  # of one client: an epoch is a round's steps
SHAPE, CLASSES = (1, 28, 28), 62
PROCESSES = 2


@dataclass(frozen=True)
class Task:
    """What one measurement asks of a row: ``rounds`` timed rounds of ``model``."""

    model: str
    rounds: int
    data: Path  # folder of data.py
    out: Path  # folder for rounds.json and whatever else the row leaves

    def argv(self) -> list[str]:
        return [f"--model={self.model}", f"--rounds={self.rounds}", f"--data={self.data}", f"--out={self.out}"]


def task() -> Task:
    """The task that the command line of a row's script names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    return Task(**vars(parser.parse_args()))


@dataclass
class Spans:
    """Begin and end of each round that counts, in seconds since 1970."""

    rounds: list[tuple[float, float]] = field(default_factory=list)
    _begun: float = 0.0

    def begin(self) -> None:
        self._begun = time.time()

    def end(self) -> None:
        self.rounds.append((self._begun, time.time()))

    def write(self, out: Path, *, warm_up: int, seconds: Sequence[float] | None = None, **more: Any) -> None:
        """Write rounds.json without the first ``warm_up`` rounds; ``seconds`` where a row times rounds itself."""
        kept = self.rounds[warm_up:]
        content = {"rounds": kept, "seconds": list(seconds or [end - begin for begin, end in kept]), **more}
        temporary = out / "rounds.json.tmp"
        temporary.write_text(json.dumps(content), encoding="utf-8")
        os.replace(temporary, out / "rounds.json")
