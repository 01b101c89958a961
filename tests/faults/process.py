"""One process of a job under faults: the entry of a method, armed; started by fork from a server that has
imported everything, so that a restart takes milliseconds."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from fedscale_ext import compat

compat.prepare()

import fedscale_ext.methods.fedavg  # noqa: E402
import fedscale_ext.runtime.executor  # noqa: E402, F401
from fedscale_ext.runtime import launch  # noqa: E402

from .steps import Kill, arm  # noqa: E402


def main(name: str, argv: list[str], environment: dict[str, str], kills: list[Kill], folder: Path) -> None:
    """Run as the process ``name`` of a job with command line ``argv``; its output goes to ``folder/name.log``."""
    os.environ.update(environment)
    log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = ["entry", *argv]

    def run(role: Any, config: Any) -> None:
        process = role(config)
        arm(process, name, kills, folder)
        process.run()

    launch._run = run
    launch.run_rank()


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    """What the process said on standard output."""
    path = folder / f"{name}.log"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith('{"event"')]
