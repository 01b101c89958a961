"""How many clients of a model train side by side: measured once per (spec, device), then kept.

The executor measures (:func:`measure`), the aggregator decides (:class:`CohortSizes`). The choice
changes a result's rounding, so it is part of the job: kept in its checkpoints, and in a folder of the
user's cache, so that the same configuration on the same machine chooses the same again.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.metrics.files import write_atomic
from fedscale_ext.util.reading import read_json

EVENT = "calibrate"  # of a unit that measures, beside FedScale's events
BUDGET_S = 2.0  # longest calibration of one spec on one device
_REVISION = 2  # of the ways to train: choices that older ones were measured for do not count
_STEPS, _REPEATS = 2, 2
_CANDIDATES = {"cpu": (1, 4, 8, 16), "cuda": (1, 8, 32, 128)}
_MOST_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}  # of a cohort's states; gradients and momentum come on top
_SLACK = 1.03  # a smaller cohort is taken where it is at most this much slower: its units balance better


def candidates(device: str, participants: int) -> list[int]:
    """Sizes of cohorts that are worth measuring on a device ("cpu", "cuda:0") with so many clients a round."""
    return [size for size in _CANDIDATES[device.partition(":")[0]] if size == 1 or size <= participants]


def fitting(sizes: list[int], device: str, client_bytes: int) -> list[int]:
    """Those of which the memory is not full: ``client_bytes`` is what a cohort keeps for each client."""
    most = _MOST_BYTES[device.partition(":")[0]]
    return [size for size in sizes if size == 1 or size * client_bytes <= most]


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
    """The chosen sizes of a job, by spec. ``about`` is what else decides them: device, precision, batch.

    ``folder`` holds one small file per choice, for later jobs on the machine.
    """

    def __init__(self, about: Mapping[str, Any], folder: Path | None = None) -> None:
        self._about = dict(about)
        self._folder = folder or _default_folder()
        self.chosen: dict[str, int] = {}

    def size(self, spec: ModelSpec) -> int | None:
        """The size for a spec, None where it must be measured first."""
        key = self.key(spec)
        known = self.chosen.get(key) or self._read(key)
        if known is not None:
            self.chosen[key] = known
        return known

    def choose(self, spec: ModelSpec, seconds: Mapping[int, float]) -> int:
        """Decide by measured seconds and keep it; what another job chose in the meantime stands."""
        key = self.key(spec)
        self.chosen[key] = self._read(key) or fastest(seconds)
        kept = {"size": self.chosen[key], "seconds": {str(size): spent for size, spent in seconds.items()}}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path(key), json.dumps({**kept, "spec": spec.to_json(), **self._about}, indent=1))
        except OSError as error:
            logging.warning(f"the size of cohorts is not kept for later jobs: {error}")
        return self.chosen[key]

    def key(self, spec: ModelSpec) -> str:
        """Digest of everything that the best size depends on."""
        text = json.dumps([_REVISION, spec.to_json(), self._about], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def _read(self, key: str) -> int | None:
        try:
            size = read_json(self._path(key))["size"]
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or spoilt: it is measured anew
            return None
        return size if isinstance(size, int) and size >= 1 else None


def _default_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "fedscale_ext" / "cohorts"
