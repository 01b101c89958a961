"""Runs a job as real processes that talk over real gRPC, kills them and starts them again."""

import multiprocessing
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from job_results import chain, result

from fedscale_ext.config.job_config import JobConfig, load_config
from fedscale_ext.core.events import EVENTS_VARIABLE
from fedscale_ext.driver import preparation
from fedscale_ext.metrics.job_folder.round_records import read_records

from .process import JoinOptions, events, join_main, main
from .proxy import Proxy
from .steps import Kill

AGGREGATOR = "aggregator"  # the others are executor-1, executor-2, …
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["faults.process"])


@dataclass
class Result:
    """How a job ended: ``rounds`` and ``models`` as job_results has them, and what was done to it."""

    rounds: list[dict[str, Any]]
    models: dict[str, Any]
    log_dir: Path
    folder: Path  # of the processes' output
    deaths: Counter[str] = field(default_factory=Counter)  # by process: ended by SIGKILL and started again
    disturbed: Counter[str] = field(default_factory=Counter)  # by the proxy, by kind
    faults: Counter[str] = field(default_factory=Counter)  # what the rounds' lines tell of it
    events: list[dict[str, Any]] = field(default_factory=list)  # of the aggregator, in all its lives

    @property
    def compared(self) -> dict[str, Any]:
        """What must be equal, for job_results.assert_equal; the chain of the records, too, if no setting differs."""
        return {"rounds": self.rounds, "models": self.models, "chain": chain(self.log_dir)}


class Job:
    """The processes of a job; whichever ends by SIGKILL is started again, the aggregator from its checkpoint."""

    def __init__(
        self,
        config: JobConfig,
        kill: Mapping[str, Iterable[Kill]],
        folder: Path,
        lost: Collection[str],
        disturb: Mapping[str, Any] | None,
        calls: int | None,
    ) -> None:
        self.folder, self.lost, self.calls = folder, lost, calls
        self.proxy: Proxy | None = None
        self.kill = {name: list(kills) for name, kills in kill.items()}
        self.deaths: Counter[str] = Counter()
        self.processes: dict[str, Any] = {}
        self.joiners: dict[str, Any] = {}
        args = config.fedscale
        self.log_dir = Path(args.log_path) / "logs" / args.job_name / args.time_stamp
        self._environment = {EVENTS_VARIABLE: "1", "OMP_NUM_THREADS": "1"}
        self.port = _free_port()
        if disturb is not None:
            self.proxy = Proxy(self.port, **disturb)
        commands = preparation.commands(config, ps_port=self.port)
        self.argv = {name.replace(" ", "-"): argv[2:] for name, argv in commands.items()}
        for name, kills in self.kill.items():
            assert name in self.argv, f"no process {name} among {', '.join(self.argv)}"
            assert kills, f"no kill of {name}"

    def start(self, name: str) -> None:
        """Start a process, or start it again."""
        argv = self.argv[name]
        if name == AGGREGATOR and any(self.log_dir.glob("checkpoints/*.safetensors")):
            argv = [*argv, "--resume=True"]
        elif name != AGGREGATOR and self.proxy is not None:
            argv = [*argv, f"--ps_port={self.proxy.port}"]
        arguments = (name, argv, self._environment, self.kill.get(name, []), self.folder, self.calls)
        self.processes[name] = _CONTEXT.Process(target=main, args=arguments, name=name, daemon=True)
        self.processes[name].start()

    def join(self, kill: Kill | None = None, number_of_signal: int = signal.SIGKILL, **fields: Any) -> None:
        """Start a process that joins, and signals itself at a step; its name is joiner-1, joiner-2, …

        ``fields`` are those of its ``JoinOptions``. One that has ended is not started again.
        """
        name = f"joiner-{len(self.joiners) + 1}"
        options = JoinOptions("127.0.0.1", self.port, str(self.folder / "joined"), **fields)
        arguments = (name, options, [kill] if kill else [], number_of_signal, self.folder)
        self.joiners[name] = _CONTEXT.Process(target=join_main, args=arguments, name=name, daemon=True)
        self.joiners[name].start()

    def run(self, timeout_s: float, meddle: Callable[["Job"], None] | None = None) -> Result:
        """To the job's end; AssertionError when it fails or takes longer. ``meddle`` is called every 50 ms."""
        deadline = time.monotonic() + timeout_s
        try:
            for name in self.argv:
                self.start(name)
            while self.processes[AGGREGATOR].exitcode != 0:
                self._look(deadline, meddle)
        finally:
            if self.proxy is not None:
                self.proxy.close()
            for process in [*self.processes.values(), *self.joiners.values()]:
                process.join(1.0 if sys.exc_info()[0] is None else 0.0)
                process.kill()
                process.join()
        left = [f"{name}: {kills[n]}" for name, kills in self.kill.items() for n in range(len(kills))
                if not (self.folder / f"{name}.{n}.killed").exists()]  # fmt: skip
        assert not left, f"no process came to {left}"
        records = read_records(self.log_dir / "metrics.jsonl")
        return Result(
            **result(self.log_dir),
            log_dir=self.log_dir,
            folder=self.folder,
            deaths=self.deaths,
            disturbed=self.proxy.done if self.proxy else Counter(),
            faults=sum((Counter(record.faults) for record in records), Counter()),
            events=events(self.folder, AGGREGATOR),
        )

    def _look(self, deadline: float, meddle: Callable[["Job"], None] | None) -> None:
        everyone = [*self.processes.values(), *self.joiners.values()]
        wait([process.sentinel for process in everyone if process.exitcode is None], 0.05)
        for name, process in list(self.processes.items()):
            code = process.exitcode  # looked at once: it may end at any time
            if code == -signal.SIGKILL:
                self.deaths[name] += 1
                if name in self.lost:
                    del self.processes[name]
                else:
                    self.start(name)
            else:
                assert code in (None, 0), f"{name} ended with exit code {code}: {self.tail(*self.argv)}"
        for name, process in self.joiners.items():
            expected = (None, 0, 130, -signal.SIGKILL)
            assert process.exitcode in expected, f"{name} ended with exit code {process.exitcode}: {self.tail(name)}"
        if meddle is not None:
            meddle(self)
        assert time.monotonic() < deadline, f"the job did not end in time; {self.tail(*self.argv)}"

    def tail(self, *names: str) -> str:
        """The last lines that processes printed, and where those are that still run."""
        for process in self.processes.values():
            if process.exitcode is None:
                os.kill(process.pid, signal.SIGUSR1)
        time.sleep(0.5)
        logs = [(name, self.folder / f"{name}.log") for name in names]
        return "\n".join(f"{name}:\n" + "\n".join(path.read_text(errors="replace").splitlines()[-60:])
                         for name, path in logs if path.exists())  # fmt: skip


def _free_port() -> int:
    """A port outside the range from which the system gives ports to others while the aggregator is down."""
    for port in random.SystemRandom().sample(range(20000, 32000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no free port")


def _start_fork_server() -> None:
    """Where it finds these modules: it does not take this process's sys.path in every version of Python."""
    here = Path(__file__).resolve()
    paths = [str(here.parents[2]), str(here.parents[1])]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [before])])
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before it imports torch
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def run_job(
    job_file: Path,
    overrides: Mapping[str, Any],
    kill: Mapping[str, Iterable[Kill]] | None = None,
    *,
    lost: Collection[str] = (),
    disturb: Mapping[str, Any] | None = None,
    calls: int | None = None,
    timeout_s: float = 300.0,
    meddle: Callable[[Job], None] | None = None,
) -> Result:
    """Run the job of a configuration to its end, whatever befalls its processes.

    ``kill`` names, per process (``aggregator``, ``executor-1``, …), steps of ``steps.STEPS`` with a round:
    at the first such step in that round or later the process ends itself by SIGKILL, once per entry, and is
    started again, unless it is one of ``lost``. ``disturb`` puts a proxy.Proxy with these arguments between
    aggregator and executors; ``calls`` is the seed of what calls.py does to each executor's calls. Jobs of one
    folder need different ``job_name``s.
    """
    settings = {"job_name": "faults", "checkpoint_interval": 1, **overrides}
    config = load_config(job_file, [f"{key}={value}" for key, value in settings.items()])
    folder = job_file.parent / f"processes-{config.fedscale.job_name}"
    folder.mkdir()
    _start_fork_server()
    return Job(config, kill or {}, folder, lost, disturb, calls).run(timeout_s, meddle)
