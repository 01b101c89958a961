"""The work that every row of the comparison does, and how a row says what it took.

100 clients, each 20 steps of plain SGD on batches of 10 of its own 200 samples, averaged with equal weights.
Imported in the peers' environments too: nothing here needs more than torch, numpy and this package's models.
"""

import argparse
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedscale_ext import models

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


def module(name: str, seed: int = 1) -> nn.Module:
    """A named model of this package with initial weights that depend on the seed only."""
    spec = models.named_spec(name, SHAPE, CLASSES)
    result = models.build(spec)
    result.load_state_dict(models.initial_state(spec, seed))
    return result


def samples(folder: Path, *, mapped: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """x float32 [clients, samples, 1, 28, 28], normalised, and y int64 [clients, samples]."""
    mode = "r" if mapped else None
    return np.load(folder / "x.npy", mmap_mode=mode), np.load(folder / "y.npy", mmap_mode=mode)


def checksum(tensors: Iterable[torch.Tensor]) -> float:
    """Sum of magnitudes: equal for rows that did the same arithmetic."""
    return sum(float(tensor.detach().double().abs().sum()) for tensor in tensors if tensor.is_floating_point())


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
