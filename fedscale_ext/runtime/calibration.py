"""How many clients of a model train side by side: measured once per (spec, device), then kept.

The executor measures (:func:`measure`), the aggregator decides (:class:`CohortSizes`). The choice
changes a result's rounding, so it is part of the job: kept in its checkpoints, and in a file beside the
jobs' states, so that the same configuration on the same machine chooses the same again.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedscale_ext.metrics.files import write_atomic
from fedscale_ext.models.spec import ModelSpec

EVENT = "calibrate"  # of a unit that measures, beside FedScale's events
BUDGET_S = 2.0  # longest calibration of one spec on one device
_STEPS, _REPEATS = 2, 2
_CANDIDATES = {"cpu": (1, 4, 8, 16), "cuda": (1, 8, 32, 128)}
_MOST_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}  # of a cohort's states; gradients and momentum come on top
_SLACK = 1.03  # a smaller cohort is taken where it is at most this much slower: its units balance better


def candidates(device: str, participants: int, model_bytes: int) -> list[int]:
    """Sizes of cohorts that are worth measuring for a model on a device ("cpu", "cuda:0") with so many
    clients a round: large models fill the processor alone, and K of them would fill the memory."""
    kind = device.partition(":")[0]
    return [
        size
        for size in _CANDIDATES[kind]
        if size == 1 or (size <= participants and size * model_bytes <= _MOST_BYTES[kind])
    ]


def measure(
    sizes: list[int], train: Callable[[int, int], None], clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Seconds per client and step for cohorts of ``sizes``, ascending, until the budget would be overdrawn.

    ``train(size, steps)`` trains so many clients for so many steps.
    """
    began = clock()
    seconds: dict[int, float] = {}
    for size in sizes:
        expected = min(seconds.values(), default=0.0) * size * (1 + _STEPS * _REPEATS)
        if clock() - began + expected > BUDGET_S:
            break
        train(size, 1)  # the first step builds what the later ones use
        times = []
        for _ in range(_REPEATS):
            start = clock()
            train(size, _STEPS)
            times.append(clock() - start)
        seconds[size] = min(times) / (size * _STEPS)
    return seconds


def fastest(seconds: Mapping[int, float]) -> int:
    """The smallest size about as fast as the fastest."""
    best = min(seconds.values())
    return min(size for size, spent in seconds.items() if spent <= _SLACK * best)


class CohortSizes:
    """The chosen sizes of a job, by spec. ``about`` is what else decides them: device, precision, batch."""

    def __init__(self, about: Mapping[str, Any], file: Path | None = None) -> None:
        self._about = dict(about)
        self._file = file or _default_file()
        self.chosen: dict[str, int] = {}

    def size(self, spec: ModelSpec) -> int | None:
        """The size for a spec, None where it must be measured first."""
        key = self.key(spec)
        if key not in self.chosen:
            known = self._read().get(key)
            if isinstance(known, int) and known >= 1:
                self.chosen[key] = known
        return self.chosen.get(key)

    def choose(self, spec: ModelSpec, seconds: Mapping[int, float]) -> int:
        """Decide by measured seconds and keep it, for this job and the machine's later ones."""
        key = self.key(spec)
        self.chosen[key] = fastest(seconds)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._file, json.dumps({**self._read(), key: self.chosen[key]}, indent=1))
        return self.chosen[key]

    def key(self, spec: ModelSpec) -> str:
        """Digest of everything that the best size depends on."""
        text = json.dumps([spec.to_json(), self._about], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def _read(self) -> dict[str, Any]:
        try:
            known = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # none yet, or spoilt: it is measured anew
            return {}
        return known if isinstance(known, dict) else {}


def _default_file() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "fedscale_ext" / "cohorts.json"
