"""Runs a job: the aggregator and its executors as processes of this machine, from start to exit code."""

import os
import shlex
import time
from dataclasses import dataclass
from typing import Any

from fedscale_ext.cli import jobs, preparation
from fedscale_ext.cli.preparation import AGGREGATOR
from fedscale_ext.cli.processes import Exit, Interrupt, Proc, Processes, Said
from fedscale_ext.cli.progress import Display
from fedscale_ext.cli.setup_commands import plain_commands
from fedscale_ext.config import load_config
from fedscale_ext.token import new_token, read_token

_CAUSE_S = 0.5  # after the first failure: time for the aggregator to say what was behind it
_LEAVE_S = 15.0  # after the summary: time for all processes to leave


@dataclass(frozen=True)
class Outcome:
    """How a job ended: ``status`` as in job.json, the command's exit code, the reason of a failure."""

    status: str
    code: int
    reason: str | None = None
    tail: tuple[str, ...] = ()  # last output of the process that failed


def start(conf: str, overrides: list[str], resume: bool, display: Display) -> int:
    """Run the job of a configuration to its end and return the exit code; UserError for bad input."""
    config = load_config(conf, overrides)
    name = config.fedscale.job_name
    preparation.check_hosts(config)
    plain, shell = plain_commands(config.cluster.setup_commands or ())
    with jobs.claim(name):
        last = jobs.read(name)
        log_path, time_stamp = preparation.place(config, last, resume)
        if last:
            jobs.kill_children(last)
        keys = {"log_path": log_path, "time_stamp": time_stamp, "ps_port": preparation.port(config)}
        token = jobs.folder(name) / "token"
        if config.job.token_file is None:
            keys["token_file"] = str(new_token(token))
        else:
            read_token(config.job.token_file)  # a bad one is better named before processes start
        if resume:
            keys["resume"] = True
        ranks = preparation.commands(config, **keys)
        source = str(config.source.absolute()) if config.source else conf
        job = jobs.Job(name, source, log_path, time_stamp, ranks[AGGREGATOR], Proc.of("driver", os.getpid()))
        if shell:
            display.notice(f"these setup_commands apply under FedScale's own driver only: {'; '.join(shell)}")
        try:
            with jobs.output_log(name).open("a" if resume else "w", encoding="utf-8") as log:
                return _Run(job, Processes(log), display).run(plain, ranks)
        finally:
            token.unlink(missing_ok=True)


class _Run:
    """One job under supervision; everything that happens to it arrives in ``processes.next``."""

    def __init__(self, job: jobs.Job, processes: Processes, display: Display):
        self.job = job
        self.processes = processes
        self.display = display
        self.summary: dict[str, Any] | None = None
        self.failure: Outcome | None = None
        self.failed = ""  # the process that the failure is about
        self.deadline: float | None = None

    def run(self, setup: list[list[str]], ranks: dict[str, list[str]]) -> int:
        outcome = Outcome("failed", 1, "the driver itself failed")
        jobs.write(self.job)
        try:
            with preparation.interrupts_into(self.processes.inbox):
                try:
                    with self.display:
                        outcome = self._prepare(setup) or self._train(ranks)
                finally:
                    self.processes.stop()
        finally:
            self.job.status, self.job.reason, self.job.ended = outcome.status, outcome.reason, time.time()
            jobs.write(self.job)
        self._conclude(outcome)
        return outcome.code

    def _prepare(self, setup: list[list[str]]) -> Outcome | None:
        """Run the setup commands one after another; None when all went well."""
        for argv in setup:
            self._start(f"setup command {shlex.join(argv)}", argv, dict(os.environ))
            while self.processes.running():
                message = self.processes.next(None)
                if isinstance(message, Interrupt):
                    return Outcome("stopped", 130)
                if isinstance(message, Exit) and message.code != 0:
                    return self._died(message)
        return None

    def _train(self, ranks: dict[str, list[str]]) -> Outcome:
        for name, argv in ranks.items():
            self._start(name, argv, preparation.environment())
        while self.processes.running():
            message = self.processes.next(self.deadline)
            if isinstance(message, Interrupt):
                return Outcome("stopped", 130)
            if message is None:
                break
            if isinstance(message, Said):
                self._hear(message)
            else:
                self._miss(message)
        if self.failure:
            return self.failure
        if self.processes.running():
            self.display.notice(f"{', '.join(self.processes.running())} did not leave after the summary and was ended")
            if AGGREGATOR in self.processes.running():
                return Outcome("failed", 1, "the aggregator hung after its summary")
        return Outcome("finished", 0)

    def _start(self, name: str, argv: list[str], env: dict[str, str]) -> None:
        self.job.children = [child for child in self.job.children if child.name in self.processes.running()]
        self.job.children.append(self.processes.start(name, argv, env))
        jobs.write(self.job)

    def _hear(self, said: Said) -> None:
        kind = said.event["event"]
        if kind == "error":
            if self.summary is None or said.name == AGGREGATOR:
                code = 2 if said.event.get("exit_code") == 2 else 1
                self._fail(said.name, Outcome("failed", code, str(said.event.get("message"))))
        elif said.name != AGGREGATOR:
            return
        elif kind == "summary":
            self.summary = said.event
            self.deadline = time.monotonic() + _LEAVE_S
        else:
            if kind == "round":
                self.job.round = said.event
                if said.event.get("accuracy") is not None:
                    self.job.accuracy = said.event["accuracy"]
                jobs.write(self.job)
            self.display.event(said.event)

    def _miss(self, gone: Exit) -> None:
        """A process has left: in order after the summary, and for an executor whenever it was told to."""
        if gone.code != 0 and (self.summary is None or gone.name == AGGREGATOR):
            self._fail(gone.name, self._died(gone))
        elif gone.name == AGGREGATOR and self.summary is None:
            self._fail(gone.name, self._died(gone, "ended without a summary"))

    def _fail(self, name: str, outcome: Outcome) -> None:
        """Note a failure; of several within a moment, the first, but an aggregator's before an executor's."""
        if self.failure is None:
            self.failed, self.failure = name, outcome
            self.deadline = time.monotonic() + _CAUSE_S
        elif name == AGGREGATOR != self.failed:
            self.failed, self.failure = name, outcome

    def _died(self, gone: Exit, how: str = "") -> Outcome:
        return Outcome("failed", 1, f"{gone.name} {how or gone.how}", tuple(self.processes.tails[gone.name]))

    def _conclude(self, outcome: Outcome) -> None:
        log = jobs.output_log(self.job.name)
        if outcome.status == "finished" and self.summary:
            self.display.summary(self.summary, str(self.job.log_dir), str(log))
        elif outcome.status == "stopped":
            self.display.error(f"job {self.job.name} was stopped; --resume continues it from its last checkpoint")
        else:
            for line in outcome.tail:
                self.display.log_line(line)
            where = "" if outcome.code == 2 else f"; all output is in {log}"
            self.display.error(f"{outcome.reason}{where}")
