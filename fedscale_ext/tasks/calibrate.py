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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State, WorkItem
from fedscale_ext.data.registry import is_text
from fedscale_ext.tasks.answers.answer_checks import LONGEST_S
from fedscale_ext.tasks.kind import Answer, Dispatcher, Kind, Worker
from fedscale_ext.tasks.workbench import can_factor
from fedscale_ext.training.local_training import train_alone
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.transport.units import Dropped, Unit, UnitHeader
from fedscale_ext.transport.wire import Section, WireError
from fedscale_ext.util.atomic_files import write_atomic
from fedscale_ext.util.reading import read_json
from fedscale_ext.util.torch_devices import device_type

EVENT = "calibrate"  # of a unit that measures, in addition to FedScale's events
# Longest calibration of one spec on one device. On a GPU, the first step of a size looks for kernels and is recorded.
BUDGET_S = {"cpu": 2.0, "cuda": 20.0}
_REVISION = 2  # of the ways to train: choices that older ones were measured for do not count
_STEPS, _REPEATS = 2, 2
_CANDIDATES = {"cpu": (1, 4, 8, 16), "cuda": (1, 8, 32, 128)}
_MOST_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}  # of a cohort's states; gradients and momentum come on top
_SLACK = 1.03  # a smaller cohort is taken where it is at most this much slower: its units balance better


def candidates(device: str, participants: int) -> list[int]:
    """Return the sizes of cohorts worth measuring on a device ("cpu", "cuda:0"), for rounds of ``participants``."""
    return [size for size in _CANDIDATES[device_type(device)] if size == 1 or size <= participants]


def fitting(sizes: list[int], device: str, client_bytes: int) -> list[int]:
    """Return the sizes that fit into the device's memory; a cohort keeps ``client_bytes`` for each client."""
    most = _MOST_BYTES[device_type(device)]
    return [size for size in sizes if size == 1 or size * client_bytes <= most]


def measure(
    sizes: list[int],
    train: Callable[[int, int], None],
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """Measure seconds per client and step for cohorts of ``sizes``, ascending, until ``budget_s`` seconds are spent.

    ``train(size, steps)`` trains so many clients for so many steps.
    """
    began = clock()
    seconds: dict[int, float] = {}
    for size in sizes:
        expected = min(seconds.values(), default=0.0) * size * (1 + _STEPS * _REPEATS)
        if clock() - began + expected > budget_s:
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
    """Return the smallest size that is about as fast as the fastest."""
    best = min(seconds.values())
    return min(size for size, spent in seconds.items() if spent <= _SLACK * best)


class CohortSizes:
    """The chosen sizes of cohorts of a job, by spec. ``about``: device, precision and batch, which decide them too.

    ``folder`` holds one small file per choice, for later jobs on the machine.
    """

    def __init__(self, about: Mapping[str, Any], folder: Path | None = None) -> None:
        self._about = dict(about)
        self._folder = folder or _default_folder()
        self.chosen: dict[str, int] = {}

    def size(self, spec: ModelSpec) -> int | None:
        """Return the size for a spec, None where it must be measured first."""
        key = self.key(spec)
        size = self.chosen.get(key) or self._read(key)
        if size is not None:
            self.chosen[key] = size
        return size

    def choose(self, spec: ModelSpec, seconds: Mapping[int, float]) -> int:
        """Choose a size by measured seconds and store it; another job's choice in the meantime takes precedence."""
        key = self.key(spec)
        self.chosen[key] = self._read(key) or fastest(seconds)
        record = {"size": self.chosen[key], "seconds": {str(size): spent for size, spent in seconds.items()}}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path(key), json.dumps({**record, "spec": spec.to_json(), **self._about}, indent=1))
        except OSError as error:
            logging.warning(f"the size of cohorts is not kept for later jobs: {error}")
        return self.chosen[key]

    def state(self) -> tuple[State, dict[str, int]]:
        """Return the choices for a checkpoint."""
        return {}, self.chosen

    def load_state(self, tensors: State, data: dict[str, int]) -> None:
        """Restore the choices of :meth:`state`."""
        self.chosen.update(data)

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


def measure_sizes(dispatcher: Dispatcher, round: int, sizes: CohortSizes, possible: Mapping[str, list[int]]) -> None:
    """Have executors measure the ``possible`` sizes of cohorts of each model key, and choose one for its spec."""
    job = dispatcher.job
    units = [
        job.make_unit(
            EVENT,
            [key],
            model=key,
            sizes=candidates_of_key,
            sum=job.returns == "sum",
            clip_norm=dispatcher.clip_norm,
            norms=dispatcher.reports_norms,
            learning_rate=job.learning_rate(round),
        )
        for key, candidates_of_key in possible.items()
    ]
    for key, answer in zip(possible, dispatcher.answers(units), strict=True):
        if isinstance(answer, Dropped):
            raise UserError(f"cohort_size auto: {answer.reason}; set cohort_size to a number")
        header, _ = answer
        size = sizes.choose(job.pool[key].spec, dict(header["seconds_by_size"]))
        logging.info(f"model {key} trains {size} clients side by side; measured {header['seconds_by_size']}")


class Calibrate(Kind):
    """Seconds per client and step by size of cohort, on random samples from the model's present state."""

    event: ClassVar[str] = EVENT

    def run(self, worker: Worker, header: UnitHeader) -> Answer:  # noqa: D102
        model = header["model"]
        conf = worker.client_config(header, WorkItem(1, model).to_json())
        trainer = worker.client_of(conf)
        samples = _random_samples(worker, 2 * conf.batch_size)
        cohort_of = partial(worker.bench.cohort, model, factored=can_factor(header, [conf]), tap=trainer.tap)
        one = cohort_of(1, 1) if trainer.in_cohorts else None
        sizes = [1]
        if one is not None:
            client_bytes = one.client_bytes(conf.local_steps * conf.batch_size)
            sizes = fitting(header["sizes"], worker.bench.device.type, client_bytes)

        def train(size: int, steps: int) -> None:
            settings = replace(conf, local_steps=steps, local_epochs=None)
            if size == 1:
                train_alone(trainer, samples, worker.bench.module(model), settings)
                return
            cohort = cohort_of(size, size)
            assert cohort is not None
            trainer.train_cohort([samples] * size, cohort, [settings] * size)

        seconds = measure(sizes, train, BUDGET_S[worker.bench.device.type])
        return {"seconds_by_size": [[size, spent] for size, spent in seconds.items()]}, {}

    def check(  # noqa: D102
        self, unit: Unit, header: Mapping[str, Any], sections: Mapping[str, Section], test_sizes: np.ndarray
    ) -> None:
        seconds, sizes = header.get("seconds_by_size"), unit.header["sizes"]
        if not isinstance(seconds, list) or not 0 < len(seconds) <= len(sizes):
            raise WireError("seconds_by_size is not a list of as many sizes as asked for")
        for entry in seconds:
            match entry:
                case [int(size), float(spent)] if type(size) is int and size in sizes and 0 < spent < LONGEST_S:
                    pass
                case _:
                    raise WireError("seconds_by_size holds something other than sizes and their seconds")
        if len({size for size, _ in seconds}) != len(seconds):
            raise WireError("seconds_by_size names a size twice")


def _random_samples(worker: Worker, count: int) -> ClientSamples:
    """Samples of the data set's shape; numbers of symbols for a text, which clients may learn to predict."""
    data, device = worker.data, worker.bench.device
    generator = torch.Generator().manual_seed(0)
    shape, classes = (count, *data.input_shape), data.num_classes
    if is_text(data.data_set):
        x = torch.randint(classes, shape, generator=generator).float().to(device)
    else:
        x = torch.randn(*shape, generator=generator).to(device)
    return ClientSamples(x, torch.randint(classes, (count,), generator=generator).to(device))
