"""One measurement: a row's script run once for a model, and the record of what it took."""

import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from evals.speed import machine, monitor
from evals.speed.peers import missing
from evals.speed.rows import ROWS
from evals.speed.task import Task

ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 7200.0
_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}  # peers that would report their use


def folder_of(work: Path, model: str, row: str) -> Path:
    """Where the last measurement of a row left its files."""
    return work / "runs" / f"{model}-{row}"


def measure(row_name: str, model: str, rounds: int, *, work: Path, peers: Path, idle_s: float) -> dict[str, Any]:
    """Run a row once. ``status`` of the result is "ok" or one sentence why there is no figure."""
    row = ROWS[row_name]
    reason = missing(row.peer, peers)
    if reason is not None:
        return {"status": reason}
    out = folder_of(work, model, row_name)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    command = row.command(peers, Task(model, rounds, work / "data", out).argv())
    assert command is not None  # `missing` has looked
    environment = {**os.environ, **_QUIET, "FLWR_HOME": str(out)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    if row_name != "ours":  # one thread per process is each peer's fastest setting
        environment["OMP_NUM_THREADS"] = "1"
    load = machine.wait_idle(idle_s)
    began = time.time()
    watched = monitor.run(command, env=environment, cwd=out, log=out / "output.log", limit_s=_LIMIT_S)
    if watched.code != 0:
        return {"status": failure(watched.code, out / "output.log"), **load}
    told = json.loads((out / "rounds.json").read_text(encoding="utf-8"))
    return {"status": "ok", "wall_s": round(time.time() - began, 2), **figures(told, watched), **load}


def figures(told: dict[str, Any], watched: monitor.Watched) -> dict[str, Any]:
    """What a row told of its rounds, joined with what was seen of its processes."""
    spans = told.pop("rounds")
    peaks = watched.peaks()
    cpu_s = watched.cpu_between(spans[0][0], spans[-1][1])
    return {
        **told,
        "median_s": statistics.median(told["seconds"]),
        "cpu_s_per_round": round(cpu_s / len(spans), 3),
        "cpu_s_total": round(watched.cpu[-1][1], 2),
        "peak_mb": peaks[0][1],
        "peak_mb_sum": round(sum(peak for _, peak in peaks), 1),
        "peaks_mb": peaks[:8],
    }


def failure(code: int | None, log: Path) -> str:
    """One sentence: how a command ended, and the last line that it wrote."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    how = f"ran longer than {_LIMIT_S:.0f} s" if code is None else f"failed with exit code {code}"
    return f"{how}: {lines[-1].strip()[:160] if lines else 'no output'}"
