"""Runs a job: the aggregator and its executors as processes of this machine, from start to exit code."""

import os
import shlex
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedscale_ext.config.idle_settings import idle_keys
from fedscale_ext.config.job_config import ConfFile, load_config
from fedscale_ext.driver import jobs, preparation
from fedscale_ext.driver.crew import Crew
from fedscale_ext.driver.preparation import AGGREGATOR
from fedscale_ext.driver.processes import Exit, Interrupt, Proc, Processes, ProcessEvent
from fedscale_ext.driver.progress import Display
from fedscale_ext.driver.resumption import checked_run, resume_advice, resume_keys
from fedscale_ext.driver.run_lock import sole_writer
from fedscale_ext.driver.supervision import Restarts, can_go_on, has_results, is_resumed, resuming
from fedscale_ext.metrics.job_folder.restarts import drop_restarts, note_restart
from fedscale_ext.util.token import new_token

_CAUSE_S = 0.5  # after the first failure: time for the aggregator to say what was behind it
_LEAVE_S = 15.0  # after the summary: time for all processes to leave


@dataclass(frozen=True)
class Outcome:
    """End of a job: ``status`` as in job.json, the command's exit code, the reason of a failure."""

    status: str
    code: int
    reason: str | None = None
    tail: tuple[str, ...] = ()  # last output of the process that failed


def start(
    conf: str | ConfFile, overrides: list[str], display: Display, *, resume: bool, resume_from: int | None,
    supervise: bool, compare_data: bool = True, crew: Crew | None = None,
) -> int:  # fmt: skip
    """Run the job of a configuration to its end and return the exit code; UserError for bad input.

    ``resume`` continues its last run from the last checkpoint, ``resume_from`` from that of a round; with
    ``supervise`` processes that end are started again. ``compare_data`` is false where a sweep has compared the data of
    the job with those of the run to resume. A ``crew`` stands for the executors on this machine.
    """
    config = asked = preparation.hide_key(load_config(conf, overrides))
    if crew is not None:
        crew.command(asked, 0, "")  # bad input is told before anything begins
        config = crew.without_executors(asked)
    name = config.fedscale.job_name
    plain, shell = preparation.check_start(config)
    with jobs.claim(name), ExitStack() as held:
        last = jobs.read(name)
        chosen = checked_run(config, last, overrides, display, resume, resume_from, compare_data)
        if chosen is None:
            return 0
        if last:
            jobs.end_all(last.children)
        port = preparation.port(config)
        job = jobs.Job(name, config.origin(), *chosen, [], Proc.of("driver", os.getpid()))
        resumed = resume or resume_from is not None
        preparation.make_log_dir(job, config, resumed)
        held.enter_context(sole_writer(job.log_dir))
        token = jobs.folder(name) / "token"
        held.enter_context(jobs.leaving_nothing(job))
        held.callback(token.unlink, missing_ok=True)
        keys: dict[str, Any] = {"log_path": job.log_path, "time_stamp": job.time_stamp, "ps_port": port}
        keys |= resume_keys(resume, resume_from)
        # `driver status` prints them, in whatever folder it is typed
        files = jobs.join_files(config.job, Path.cwd())
        keys |= {key: str(Path(path).expanduser()) for key, path in files.items()}
        if config.job.token_file is None:
            keys["token_file"] = str(new_token(token))
        ranks = preparation.commands(config, **keys)
        if crew is not None:
            ranks[crew.name] = crew.command(asked, port, keys["token_file"])
        job.argv = ranks[AGGREGATOR]
        if not resumed:
            drop_restarts(job.log_dir)
        if shell:
            display.notice(f"these setup_commands apply under FedScale's own driver only: {'; '.join(shell)}")
        if crew is not None:
            job.cluster = {crew.name: crew.cluster_address}
        command = ("start",) if crew is None else ("submit", *crew.options)
        advice = resume_advice(conf, job.conf, overrides, command)
        with jobs.open_log(name, "a" if resumed else "w") as log:
            run = Run(job, Processes(log), display, Restarts() if supervise else None, advice, idle_keys(config))
            code = run.run(plain, ranks)
        jobs.restore_after_refusal(job, last, code)
        return code


class Run:
    """One job; everything that happens to it arrives in ``processes.next``.

    Args:
        job: Its record.
        processes: Its processes.
        display: Shows its progress.
        restarts: Schedule of restarts; None: processes that end are not started again.
        advice: What a failed job's last sentence says after "continue".
        idle_note: A note about settings, for a job that is not refused.

    """

    def __init__(
        self, job: jobs.Job, processes: Processes, display: Display, restarts: Restarts | None, advice: str,
        idle_note: str | None = None,
    ):  # fmt: skip
        self.job, self.processes, self.display = job, processes, display
        self.restarts, self.advice, self.idle_note = restarts, advice, idle_note
        self.ranks: dict[str, list[str]] = {}
        self.started: set[str] = set()  # names of processes that were started before
        self.ready = False  # the aggregator has said so: the job begins, and another run's checkpoints are gone
        self.restarted: set[str] = set()  # names of processes that were started again
        self.trained = False  # all rounds are done: executors leave
        self.summary: dict[str, Any] | None = None
        self.failure: Outcome | None = None
        self.last_errors: dict[str, str] = {}  # the last error of a process, in its own words
        self.failed_process = ""  # the one that the failure is about
        self.deadline: float | None = None
        self.record_is_stale = False  # a disk has refused the job's record, and a note said so

    def run(self, setup: list[list[str]], ranks: dict[str, list[str]]) -> int:
        """Run the job with the argument lists of its processes by their names; the command's exit code."""
        self.ranks = ranks
        outcome = Outcome("failed", 1, "the driver itself failed")
        jobs.write(self.job)
        try:
            with preparation.interrupts_into(self.processes.inbox):
                try:
                    with self.display:
                        outcome = self._prepare(setup) or self._train()
                finally:
                    self.processes.stop()
        finally:
            self.job.status, self.job.reason, self.job.ended = outcome.status, outcome.reason, time.time()
            self._write_record()
        self._conclude(outcome)
        return outcome.code

    def _prepare(self, setup: list[list[str]]) -> Outcome | None:
        """Run the setup commands one after another; None when all went well."""
        for argv in setup:
            self._start(f"setup command {shlex.join(argv)}", argv)
            while self.processes.running():
                message = self.processes.next(None)
                if isinstance(message, Interrupt):
                    return Outcome("stopped", 130)
                if isinstance(message, Exit) and message.code != 0:
                    return self._outcome_of(message)
        return None

    def _train(self) -> Outcome:
        if self.ranks.keys() == {AGGREGATOR}:
            self.display.notice(f"the job has no executors; any process joins by: {self.job.join_command()}")
        for name, argv in self.ranks.items():
            self._start(name, argv)
        while self.processes.running() or (self.restarts and self.restarts.planned()):
            message = self.processes.next(self._next_look())
            if isinstance(message, Interrupt):
                done = self.summary is not None or has_results(self.job.log_dir, self.job.started)
                return Outcome("finished", 0) if done else Outcome("stopped", 130)
            if isinstance(message, ProcessEvent):
                self._note_event(message)
            elif isinstance(message, Exit):
                self._on_exit(message)
            elif self.deadline is not None and time.monotonic() >= self.deadline:
                break
            self._restart_due()
        if self.failure:
            return self.failure
        if self.processes.running():
            names = ", ".join(map(self._display_name, self.processes.running()))
            self.display.notice(f"{names} did not leave within {_LEAVE_S:g} s of the summary: ended")
        return Outcome("finished", 0)

    def _next_look(self) -> float | None:
        """When something is to be done although nothing happens."""
        times = (self.deadline, self.restarts.next() if self.restarts else None)
        return min((moment for moment in times if moment is not None), default=None)

    def _start(self, name: str, argv: list[str]) -> None:
        """Start a process of this job; again, if it ran before."""
        self.job.children = [child for child in self.job.children if child.name in self.processes.running()]
        self.job.children.append(self._launch(name, argv, restarted=name in self.started))
        self.started.add(name)
        self._write_record()

    def _launch(self, name: str, argv: list[str], restarted: bool) -> Proc:
        """Start a process where it belongs: here."""
        if name == AGGREGATOR and restarted:
            argv = resuming(argv, self.job.log_dir, self.ready)
        env = preparation.environment() if name in self.ranks else dict(os.environ)
        return self.processes.start(name, argv, env)

    def _display_name(self, name: str) -> str:
        """A process's name in sentences for people."""
        return name

    def _has_checkpoint(self) -> bool:
        return can_go_on(self.job.log_dir, is_resumed(self.job.argv), self.ready)

    def _can_restart(self, gone: Exit) -> bool:
        """Whether a process that has ended can be started where it was."""
        return True

    def _note_restart(self, name: str, reason: str, after: int) -> None:
        """Write down, where the aggregator counts them for its summary, that a process is started again."""
        with suppress(OSError):  # the same disk as the job's: the job will say it
            note_restart(self.job.log_dir, name, reason, after)

    def _restart_due(self) -> None:
        """Start again what is due; an aggregator also calls for the executors that it had sent away."""
        for name in self.restarts.take() if self.restarts else ():
            names = [name]
            if name == AGGREGATOR:
                self.trained = False
                there = [*self.processes.running(), *(self.restarts.planned() if self.restarts else ())]
                names += [other for other in self.ranks if other not in (name, *there)]
            self.restarted.update(names)
            for each in names:
                self._start(each, self.ranks[each])

    def _write_record(self) -> None:
        """Write the job's record; a disk that takes no more does not end the driver; one note says so."""
        try:
            jobs.write(self.job)
        except OSError as error:
            if not self.record_is_stale:
                self.display.notice(
                    f"{error.filename} cannot be written ({error.strerror}): until it can, `fedscale driver status` "
                    "shows an earlier state of the job"
                )
            self.record_is_stale = True

    def _note_event(self, message: ProcessEvent) -> None:
        if message.event["event"] == "error":
            self._note_error(message)
        elif message.name == AGGREGATOR:
            self._note_progress(message.event)
        elif message.event["event"] == "notice":  # of a crew, or of executors
            self.display.event(message.event)

    def _note_progress(self, event: dict[str, Any]) -> None:
        """Note and show an event of the aggregator."""
        kind = event["event"]
        if kind == "executors":
            for sentence in self.job.note_executors(event):
                if self.failure is None:
                    self.display.notice(sentence)
            self._write_record()
        elif self.job.note_event(event):
            self._write_record()
        if kind == "trained":
            self.trained = True
        elif kind == "summary":
            self.summary, self.trained = event, True
            self.deadline = time.monotonic() + _LEAVE_S
            if self.restarts:
                self.restarts.cancel()
        else:
            if kind == "round" and self.restarts:
                self.restarts.round_finished(event["round"])
            elif kind == "ready":
                if self.idle_note is not None and not self.ready:  # one that is started again is ready again
                    self.display.notice(self.idle_note)
                self.ready = True
            self.display.event(event)

    def _note_error(self, message: ProcessEvent) -> None:
        """Bad input ends the job, whoever found it; any other error is told when the process has ended.

        A final one is of a job that starting a process again would not help. Input that was good when an executor began
        is bad for that executor alone, as where it has lost its GPU.
        """
        text = str(message.event.get("message"))
        if message.event.get("final"):
            self._fail(message.name, Outcome("failed", 1, text))
        elif message.event.get("exit_code") != 2 or (
            message.name != AGGREGATOR and message.name in self.restarted and self.job.round is not None
        ):
            self.last_errors[message.name] = text
        elif self.summary is None or message.name == AGGREGATOR:
            self._fail(message.name, Outcome("failed", 2, text))

    def _on_exit(self, gone: Exit) -> None:
        """A process has left: in order after the summary, and for an executor once all rounds are done."""
        outcome = self._outcome_of(gone)
        if gone.name == AGGREGATOR:
            if self.summary is None:
                self._replace_or_fail(gone, outcome)
            elif gone.code != 0:
                self._fail(gone.name, outcome)
        elif not self.trained and (gone.code != 0 or self.restarts):
            self._replace_or_fail(gone, outcome)

    def _replace_or_fail(self, gone: Exit, outcome: Outcome) -> None:
        """A process that was still needed has ended: start it again, do without it, or end the job."""
        refused = gone.code == 2 and gone.name in self.restarted  # its input, which was good before
        if self.restarts is not None and self.failure is None and not refused and self._can_restart(gone):
            if self.restarts.plan(gone.name):
                after = self.job.round["round"] if self.job.round else 0
                self.display.notice(f"{outcome.reason} after round {after}; it is started again")
                self._note_restart(gone.name, str(outcome.reason), after)
                return
            outcome = replace(outcome, reason=f"{outcome.reason}, again and again without a finished round between")
        others = self._executors_left()
        if gone.name == AGGREGATOR or not (others or self._may_be_joined()):
            self._fail(gone.name, outcome)
        elif self.failure is None:
            self.display.notice(
                f"{outcome.reason}; {'the job goes on without it' if others else 'it was the last one'}"
            )

    def _executors_left(self) -> list[str]:
        """Executors that are left: the job's own, those that are started again, and those that joined."""
        planned = self.restarts.planned() if self.restarts else []
        started = [name for name in (*self.processes.running(), *planned) if name != AGGREGATOR]
        joined = [f"executor {line['executor']}" for line in self.job.executors if line["joined"]]
        return started + [name for name in joined if name not in self.ranks]  # by ssh, the job's own join, too

    def _may_be_joined(self) -> bool:
        """Whether a job that has lost its last executor waits for another one."""
        return False

    def _fail(self, name: str, outcome: Outcome) -> None:
        """Note a failure; of several within a moment, the first, but an aggregator's before an executor's."""
        if self.restarts:
            self.restarts.cancel()
        if self.failure is None:
            self.failed_process, self.failure = name, outcome
            self.deadline = time.monotonic() + _CAUSE_S
        elif name == AGGREGATOR != self.failed_process:
            self.failed_process, self.failure = name, outcome

    def _outcome_of(self, gone: Exit) -> Outcome:
        """A failure of the job through the end of a process, in words."""
        how = gone.how if gone.code else "ended without a summary" if gone.name == AGGREGATOR else "left too early"
        why = f" ({self.last_errors[gone.name]})" if gone.name in self.last_errors else ""
        reason = f"{self._display_name(gone.name)} {how}{why}"
        return Outcome("failed", 1, reason, tuple(self.processes.tails[gone.name]))

    def _conclude(self, outcome: Outcome) -> None:
        log = jobs.output_log(self.job.name)
        if outcome.status == "finished" and self.summary:
            self.display.summary(self.summary, str(self.job.log_dir), str(log))
        elif outcome.status == "finished":  # interrupted after its results were written
            self.display.notice(
                f"job {self.job.name} is done, results are in {self.job.log_dir}; `fedscale report {self.job.name}` "
                "draws it"
            )
        elif outcome.status == "stopped":
            has_checkpoint = self._has_checkpoint()
            how = (
                "--resume continues it from its last checkpoint"
                if has_checkpoint
                else "it has no checkpoint yet: start it anew"
            )
            self.display.error(f"job {self.job.name} was stopped; {how}")
        else:
            for line in outcome.tail:
                self.display.log_line(line)
            more = "" if outcome.code == 2 else f"; all output is in {log}"
            if more and self._has_checkpoint():
                more += f"; continue {self.advice}"
            self.display.error(f"{outcome.reason}{more}")
