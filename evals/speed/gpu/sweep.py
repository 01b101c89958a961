"""A sweep of small jobs on one GPU: one job at a time, then as many as its memory and the machine's cores allow."""

import re
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from evals.speed import headline
from evals.speed.gpu import commands
from evals.speed.gpu.measurements import Measurements
from fedscale_ext.data.layout.files import DESCRIPTION

PART = "sweep"
JOBS, ROUNDS = 4, 20
ROWS = {"one by one": ["--at-once", "1"], "as many as fit": []}
"""Options of the sweep, by what the page calls it."""
_WRITERS, _NEEDED_S = 40, 30.0
_AT_ONCE = re.compile(r"jobs, (\d+) at once")


def run(measurements: Measurements, work: Path) -> None:
    """Generate the data, then measure both ways."""
    small = measurements.setting.small
    data, needed = work / "sweep_writers", 0.0 if small else _NEEDED_S
    if not (data / DESCRIPTION).is_file():
        writers = str(4 if small else _WRITERS)
        command = [*headline.CLI, "dataset", "synthesize", "digits", "--writers", writers, "-o", str(data), "--force"]
        drawing = measurements.measure(
            PART, needed, lambda: commands.run(measurements, PART, command, work / "sweep_writers.log"), work="digits"
        )
        if drawing is None or drawing.get("failed"):
            return
    for row in ROWS:
        measurements.measure(PART, needed, partial(_seconds, measurements, data, work, row), row=row)


def _seconds(measurements: Measurements, data: Path, work: Path, row: str) -> dict[str, Any]:
    """Seconds of the sweep, and how many of its jobs ran at a time."""
    setting = measurements.setting
    folder = work / row.replace(" ", "_")
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
    folder.mkdir(parents=True)
    jobs, rounds = (2, 1) if setting.small else (JOBS, ROUNDS)
    keys = {"use_cuda": setting.on_gpu, "worker_ips": "localhost:[1]", "rounds": rounds, "data_dir": data,
            "log_path": folder, **({"num_participants": 3} if setting.small else {})}  # fmt: skip
    settings = [f"--set={key}={value}" for key, value in keys.items()]
    sweep = ["driver", "start", "fedavg", "--on", "digits", "--seeds", f"1-{jobs}", *ROWS[row]]
    log = folder / "output.log"
    began = time.monotonic()
    figures = commands.run(
        measurements, PART, [*headline.CLI, *sweep, *settings], log, {"FEDSCALE_EXT_STATE": str(folder / "state")}
    )
    figures |= {"jobs": jobs, "rounds": rounds, "seconds": time.monotonic() - began}
    if match := _AT_ONCE.search(log.read_text(encoding="utf-8")):
        figures["at_once"] = int(match[1])
    return figures
