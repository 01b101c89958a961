"""Commands of this package that a measurement runs, for as long as time is left."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evals.speed import monitor
from evals.speed.gpu.measurements import Measurements
from evals.speed.measure import ROOT, failure

_SPARE_S = 5.0


def run(
    measurements: Measurements, part: str, command: list[str], log: Path, variables: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a command in the folder of its log.

    Args:
        measurements: Whose time it takes.
        part: The part that it belongs to.
        command: The command line.
        log: File of its output.
        variables: Of its environment, beside this process's.

    Returns:
        ``peak_mb_sum``, the peak memory of all its processes, and ``failed``, one sentence, if it failed.

    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    environment |= variables or {}
    limit = max(measurements.left(part) - _SPARE_S, 1.0)
    watched = monitor.run(command, env=environment, cwd=log.parent, log=log, limit_s=limit)
    figures: dict[str, Any] = {"peak_mb_sum": round(sum(peak for _, peak in watched.peaks()), 1)}
    if watched.code is None:
        figures["failed"] = f"ended after the {limit:.0f} s that were left"
    elif watched.code:
        figures["failed"] = failure(watched.code, log)
    return figures
