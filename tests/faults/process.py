"""One process of a job under faults: the entry of a method, armed; started by fork from a server that has
imported everything, so that a restart takes milliseconds."""

import faulthandler
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from fedscale_ext import compat

compat.prepare()

from fedscale_ext import models  # noqa: E402
from fedscale_ext.entry import join, launch  # noqa: E402
from fedscale_ext.entry.join import JoinOptions  # noqa: E402
from fedscale_ext.server import records  # noqa: E402

from .calls import disturb  # noqa: E402
from .steps import Kill, arm  # noqa: E402

models.cost(models.named_spec("cnn_small", (1, 28, 28), 62))  # imports what counts MACs


def main(
    name: str, argv: list[str], environment: dict[str, str], kills: list[Kill], folder: Path, calls: int | None
) -> None:
    """Run as the process ``name`` of a job with command line ``argv``; its output goes to ``folder/name.log``.

    ``calls``: seed of what befalls its calls to the aggregator.
    """
    os.environ.update(environment)
    if calls is not None:
        disturb(f"{calls} {name}", folder / f"{name}.calls")
    log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.register(signal.SIGUSR1)  # where it is, for whoever asks why the job does not end
    sys.argv = ["entry", *argv]

    def run(role: Any, config: Any) -> None:
        process = role(config)
        arm(process, name, kills, folder)
        process.run()

    launch._run = run
    records.plot_job = lambda log_dir: log_dir / "plot.png"  # a second of each job
    launch.run_rank()


def join_main(name: str, options: JoinOptions, kills: list[Kill], number_of_signal: int, folder: Path) -> None:
    """Run as the process ``name`` that joins a job, armed as in ``steps.arm``; its output goes to ``folder/name.log``.

    It ends with exit code 130 if its signal is an interrupt.
    """
    log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    plain = join.executor_class

    def armed(method: str) -> Any:
        def make(config: Any) -> Any:
            process = plain(method)(config)
            arm(process, name, kills, folder, number_of_signal)
            return process

        return make

    join.executor_class = armed  # type: ignore[assignment]
    try:
        join.join(options, 60.0, lambda sentence: print(sentence, flush=True))
    except KeyboardInterrupt:
        sys.exit(130)


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    """What the process said on standard output."""
    path = folder / f"{name}.log"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith('{"event"')]
