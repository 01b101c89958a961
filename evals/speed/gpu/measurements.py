"""Measurements within a budget of seconds, each written as soon as it is made.

A line of the results is JSON: ``part``, what identifies the measurement in it, then its figures, or ``left_out`` with
one sentence why it has none.
"""

import gc
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

# Each part may go on until this share of the budget is spent; what an earlier part leaves, later ones have.
SHARES = {
    "correctness": 0.15,
    "rounds": 0.5,
    "convolutions": 0.55,
    "server steps": 0.6,
    "fedtrans": 0.92,
    "sweep": 1.0,
    "server steps on the CPU": 1.0,
}


class OutOfTimeError(Exception):
    """The part's time ended during a measurement."""


@dataclass(frozen=True)
class Setting:
    """Where is measured, and whether all sizes are tiny, for tests of this command itself."""

    device: torch.device
    small: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    def synchronize(self) -> None:
        """Wait until the device has done all its work."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)


class Measurements:
    """Makes measurements while time is left, and writes a line for each to ``path``.

    Args:
        path: JSON lines; an earlier file is replaced.
        setting: Where is measured.
        seconds: The budget of the whole command, which begins now.
        clock: Seconds, for tests.

    """

    def __init__(
        self, path: Path, setting: Setting, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.setting, self.seconds = setting, seconds
        self.failed = False  # whether a measurement failed
        self.lines: list[dict[str, Any]] = []
        self._path, self._clock, self._began = path, clock, clock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def left(self, part: str) -> float:
        """Seconds that a part may still take."""
        return self.seconds * SHARES[part] - (self._clock() - self._began)

    def note(self, part: str, **figures: Any) -> None:
        """Write a line that needs no measuring."""
        self.lines.append({"part": part, **figures})
        self._write()

    def measure(
        self, part: str, needed_s: float, work: Callable[[], dict[str, Any]], /, **what: Any
    ) -> dict[str, Any] | None:
        """Make a measurement if the time suffices.

        Args:
            part: One of SHARES.
            needed_s: Seconds that it is expected to take.
            work: Makes it and returns its figures.
            what: What is measured.

        Returns:
            The figures; None where it was left out, with the reason in the results.

        """
        left = self.left(part)
        if left < needed_s:
            reason = f"{max(left, 0):.0f} s were left and it was expected to take {needed_s:.0f} s"
            self.note(part, **what, left_out=reason)
            return None
        began = self._clock()
        try:
            with _interrupted_after(left):
                figures = self._with_memory(work)
        except OutOfTimeError:
            self.note(part, **what, left_out=f"it was not done after the {left:.0f} s that were left")
            return None
        except torch.OutOfMemoryError:
            self.note(part, **what, left_out="it does not fit into the GPU's memory")
            return None
        except RuntimeError as error:  # of CUDA or one of its libraries: the other measurements are worth having
            self.failed = True
            self.note(part, **what, left_out=f"it failed: {(str(error) or type(error).__name__).splitlines()[0]}")
            return None
        finally:
            if self.setting.on_gpu:
                torch.cuda.empty_cache()
        self.note(part, **what, **figures, took_s=round(self._clock() - began, 2))
        return figures

    def _with_memory(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if not self.setting.on_gpu:
            return work()
        gc.collect()
        torch.cuda.reset_peak_memory_stats(self.setting.device)
        before = torch.cuda.memory_allocated(self.setting.device)  # what an earlier measurement left does not count
        figures = work()
        most = torch.cuda.max_memory_allocated(self.setting.device)
        return {**figures, "gpu_mb": round((most - before) / 2**20, 1)}

    def _write(self) -> None:
        """Replace the file by all lines so far: a reader sees whole lines only."""
        temporary = self._path.with_name(f"{self._path.name}.tmp")
        temporary.write_text("".join(f"{json.dumps(line)}\n" for line in self.lines), encoding="utf-8")
        os.replace(temporary, self._path)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of results."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in the block once the seconds have passed; only the main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
