"""FedTrans at the paper's size from 60 measured rounds (``evals/speed/headline.py``), on the GPU.

Drawing the paper's 3,400 writers takes minutes, so that fewer are drawn. A round trains 100 participants however many
clients there are. An evaluation tests them all: its seconds are scaled up to the paper's clients, but not those in
which BatchNorm's statistics are measured, on at most 100 clients of each model.

Several executors may share the GPU: while one waits for the server or prepares a cohort, another one trains. Under
NVIDIA's Multi-Process Service, several train at the same time.
"""

import math
import shutil
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from evals.speed import headline
from evals.speed.gpu import commands, sharing
from evals.speed.gpu.measurements import Measurements
from fedscale_ext.data.layout.files import DESCRIPTION

PART = "fedtrans"
GOAL_S = 600.0  # of the whole job
PAPER_WRITERS, WRITERS, ROUNDS = 3400, 400, 60
CHECKPOINT = 10  # rounds from one checkpoint to the next
_DATA_S, _ROUNDS_S = 60.0, 60.0
SETTINGS = (("float32", 1), ("float32", 3), ("bfloat16", 1), ("bfloat16", 3))
"""Precision and number of executors of the measured jobs, the first one first; several share a GPU by the service."""
_TINY = ("num_participants=3", "local_steps=1", "model=nasbench201_sixteenth", "unit_size=4")


def run(measurements: Measurements, work: Path) -> None:
    """Generate the data, then measure the rounds."""
    small = measurements.setting.small
    data = work / ("writers" if not small else "writers_small")
    needed = 0.0 if small else _DATA_S + _ROUNDS_S
    writers, rounds = (8, 2) if small else (WRITERS, ROUNDS)
    if not (data / DESCRIPTION).is_file() or small:
        drawing = measurements.measure(
            PART, needed, lambda: _drawn(measurements, data, writers, work), work=f"drawing {writers} writers"
        )
        if drawing is None or drawing.get("failed"):
            return
    for precision, executors in SETTINGS:
        folder = job_folder(work, precision, executors)
        what = {"work": f"{rounds} rounds", "precision": precision, "executors": executors}
        shares_gpu = executors > 1 and measurements.setting.on_gpu
        service = sharing.control() if shares_gpu else None
        if shares_gpu and service is None:
            measurements.note(PART, **what, left_out="this machine has no nvidia-cuda-mps-control")
            continue
        measurements.measure(
            PART, 0.0 if small else _ROUNDS_S,
            partial(_rounds, measurements, data, folder, precision, executors, rounds, writers, service), **what,
        )  # fmt: skip


def job_folder(work: Path, precision: str, executors: int) -> Path:
    """Folder of a measured job."""
    return work / (precision if executors == 1 else f"{precision}_{executors}")


def _drawn(measurements: Measurements, data: Path, writers: int, work: Path) -> dict[str, Any]:
    command = [*headline.CLI, "dataset", "synthesize", "femnist", "--writers", str(writers), "-o", str(data), "--force"]
    return commands.run(measurements, PART, command, work / "writers.log")


def _rounds(
    measurements: Measurements,
    data: Path,
    work: Path,
    precision: str,
    executors: int,
    rounds: int,
    writers: int,
    service: str | None,
) -> dict[str, Any]:
    """Seconds of each stage of growth, and of the paper's job put together from them."""
    gpu = measurements.setting.on_gpu
    settings = [
        f"use_cuda={gpu}",
        f"precision={precision}",
        f"worker_ips=localhost:[{executors}]",
        f"checkpoint_interval={CHECKPOINT}",
        *(_TINY if measurements.setting.small else ()),
    ]
    folder = headline.log_folder(work)
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
    work.mkdir(parents=True, exist_ok=True)
    command = headline.command(data, work, rounds, settings)
    with sharing.shared_gpu(service, work / "service") if service else nullcontext({}) as variables:
        figures = commands.run(measurements, PART, command, work / "headline.log", variables)
    if not (folder / "metrics.jsonl").is_file():
        return figures
    stages = {
        models: {**stage, "test_s": _of_the_paper(stage, executors, writers)}
        for models, stage in headline.read(folder).items()
    }
    measured = sum(int(stage["rounds"]) for stage in stages.values())
    figures |= {
        "writers": writers,
        "service": service is not None,
        "measured_rounds": measured,
        "stages": {str(models): _known(stage) for models, stage in stages.items()},
    }
    if any("test_s" in stage for stage in figures["stages"].values()):
        figures["whole_s"] = headline.whole(stages, "mean_s")
    return figures


def _of_the_paper(stage: dict[str, float], executors: int, writers: int) -> float:
    """Seconds of an evaluation of the paper's clients; executors measure the statistics side by side."""
    statistics_s = stage["statistics_s"] / executors
    return statistics_s + (stage["test_s"] - statistics_s) * PAPER_WRITERS / writers


def _known(stage: dict[str, float]) -> dict[str, float]:
    """The figures of a stage that are numbers; one without an evaluation has no seconds of it."""
    return {name: figure for name, figure in stage.items() if not math.isnan(figure)}
