"""What the machine is and whether it is idle."""

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from evals.speed.peers import PACKAGES, python_of, versions_in

IDLE_PERCENT = 12.0
_LOOK_S = 2.0


def model_name() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def describe(peers: Path) -> dict[str, Any]:
    """Machine, versions and load average now."""
    versions = {name: version(name) for name in ("torch", "numpy", "grpcio")} | {"python": platform.python_version()}
    for peer, package in PACKAGES.items():
        python = python_of(peer, peers)
        if python is not None:
            versions[package] = versions_in(python, ("torch", package))[package]
    return {
        "cores": os.cpu_count(),
        "processor": model_name(),
        "system": f"{platform.system()} {platform.release()}",
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "versions": versions,
    }


def wait_idle(limit_s: float) -> dict[str, float]:
    """Wait until the processors are idle, at most ``limit_s``; the share in use at the end and the load average."""
    began = time.monotonic()
    busy = psutil.cpu_percent(_LOOK_S)
    while busy > IDLE_PERCENT and time.monotonic() - began < limit_s:
        busy = psutil.cpu_percent(_LOOK_S)
    return {
        "busy_percent": busy,
        "load_average": round(os.getloadavg()[0], 2),
        "waited_s": round(time.monotonic() - began, 1),
    }
