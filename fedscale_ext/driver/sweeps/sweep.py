"""Runs the jobs of a sweep, as many at once as fit: each by a driver of its own, so that one that fails fails alone."""

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rich.console import Console

from fedscale_ext.config.data_settings import data_settings
from fedscale_ext.config.idle_settings import idle_keys
from fedscale_ext.config.job_config import ConfFile, JobConfig, load_config, origin, read_conf
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.events import EVENTS_VARIABLE
from fedscale_ext.data.named_files import FileDigests, differing_files, digest_of, file_digests
from fedscale_ext.driver import jobs, preparation, runs
from fedscale_ext.driver.job_checks import check_jobs, refuse_faults
from fedscale_ext.driver.processes import Exit, Interrupt, Proc, Processes
from fedscale_ext.driver.progress import counted
from fedscale_ext.driver.supervision import has_checkpoint
from fedscale_ext.driver.sweeps import sweep_plan, sweep_records
from fedscale_ext.driver.sweeps.job_slots import JobSlots, job_slots
from fedscale_ext.driver.sweeps.sweep_records import Point, Sweep
from fedscale_ext.driver.sweeps.sweep_view import State, SweepDisplay, print_arms, print_notices
from fedscale_ext.entry.parent_pipe import PIPE_VARIABLE
from fedscale_ext.metrics.job_folder.earlier_run import earlier_run
from fedscale_ext.util.yaml_reading import as_yaml

ENDING = "-sweep"
#: path of the user's configuration, for the drivers that a sweep starts: they stop their jobs when it is gone
VARIABLE = "FEDSCALE_EXT_SWEEP"
_LOOK_S = 0.5  # between two looks at how far the jobs are
_CLOCK_S = 2.0  # that the clocks of a file system and of this process may differ
_STOP_S = 10.0  # a driver stops its job within 5 s


@dataclass(frozen=True)
class Way:
    """How the jobs of a sweep are run.

    Attributes:
        command: The command of ``fedscale driver`` that runs each.
        prepared: Checks the configuration of each before the first one starts; UserError if it cannot.
        here: Whether this machine has the jobs' data and files, and their checkpoints.
        stop_s: Seconds that the command needs at most to stop its job.
        options: More options of the command.

    """

    command: str = "start"
    prepared: Callable[[JobConfig], JobConfig] = sweep_plan.prepared_here
    here: bool = True
    stop_s: float = _STOP_S
    options: tuple[str, ...] = ()


def start(
    conf: str, overrides: Sequence[str], out: Console, err: Console, *,
    seeds: str | None, grid: Sequence[str], at_once: int | None, resume: bool, supervise: bool, way: Way | None = None,
) -> int:  # fmt: skip
    """Run a job for each seed and combination of the grid; the exit code: 0 all finished, 1 some failed, 130 stopped.

    With ``resume`` those that finished are left as they are and others go on from their checkpoints. ``way`` is how
    each is run, by default by ``driver start``. UserError for bad input, before the first job starts.
    """
    way = way or Way()
    file = read_conf(conf)  # once: what is checked is what the jobs get, whatever becomes of it
    plan = sweep_plan.read_plan(file, overrides, seeds, grid, way.prepared)
    plan.refuse_faults()
    points, configs = plan.points, plan.configs
    name = load_config(file, overrides).fedscale.job_name + ENDING
    with sweep_records.claim(name):
        sweep_plan.refuse_running(points)
        states = {point.name: State(rounds=config.fedscale.rounds)
                  for point, config in zip(points, configs, strict=True)}  # fmt: skip
        before = sweep_records.read(name) if resume else None
        earlier = before.runs if before is not None else {}
        resumed = sweep_plan.resumed_runs(configs, earlier)
        for record in resumed.finished:
            state = states[record.name]
            state.status, state.accuracy, state.notices = "finished", record.accuracy, record.notices
        try:
            verdicts = check_jobs(configs, out, err, resumed) if way.here else {}  # else each checks its hosts
        except KeyboardInterrupt:
            err.print("[red]fedscale:[/] the sweep was stopped while its jobs were checked: none was started",
                      highlight=False, soft_wrap=True)  # fmt: skip
            return 130
        refuse_faults(verdicts, resume)
        sweep_records.write_conf(name, file.content)
        left_out = sweep_records.left_out(points, before)
        values = sweep_records.tried(sweep_plan.read_grid(grid), before)
        sweep = Sweep(name, conf, tuple(overrides), values, (*points, *left_out), Proc.of("sweep", os.getpid()),
                      dict(earlier))  # fmt: skip
        sweep_records.write(sweep)
        slots = job_slots(configs[0], at_once) if way.here else JobSlots(at_once or 1)  # who knows other machines
        display = SweepDisplay(out, err, states)
        waiting = [point for point in points if states[point.name].status == "waiting"]
        done = len(points) - len(waiting)
        display.line(
            f"sweep {name}: {counted(len(points), 'job')}, {slots.sentence()}"
            + (f", {done} done before" if done else "")
        )
        if plan.repeats is not None:
            display.line(plan.repeats)
        if left_out:
            display.line(sweep_records.left_out_sentence(left_out))
        idle = idle_keys(*configs)
        checked = {job: [*([idle] if idle else []), *verdict.notices] for job, verdict in verdicts.items()}
        print_notices(err, checked)
        with (sweep_records.folder() / f"{name}.log").open("a" if resume else "w", encoding="utf-8") as log:
            known = {name: verdict.digest for name, verdict in verdicts.items() if verdict.digest is not None}
            run = _Run(sweep, file.path, configs, states, display, Processes(log), supervise, known, way)
            stopped = run.run(waiting, slots)
        print_arms(out, sweep, states)
        print_notices(err, {job: [notice for notice in state.notices if notice not in checked.get(job, ())]
                            for job, state in states.items()})  # fmt: skip
        if stopped:
            err.print("[red]fedscale:[/] the sweep was stopped; the same command with --resume continues it",
                      highlight=False, soft_wrap=True)  # fmt: skip
            return 130
    return 0 if all(state.status == "finished" for state in states.values()) else 1


class _Run:
    """The jobs of a sweep that are under way; everything that happens arrives in ``processes.next``."""

    def __init__(self, sweep: Sweep, source: Path, configs: Sequence[JobConfig], states: dict[str, State],
                 display: SweepDisplay, processes: Processes, supervise: bool, digests: Mapping[str, str],
                 way: Way):  # fmt: skip
        self.sweep, self.way, self._slots = sweep, way, JobSlots(1)
        self.source = origin(source)  # of the configuration, where the user has it
        self.configs = {config.fedscale.job_name: config for config in configs}
        self.states = states
        self.display = display
        self.processes = processes
        self.supervise = supervise
        known = cache(digest_of)  # jobs share files
        self.files = {config.fedscale.job_name: file_digests(config, known) if way.here else {} for config in configs}
        self.data = _SweepData(configs, digests)
        for name, state in states.items():  # of jobs that a resumed sweep leaves, some may not have been checked
            if state.status == "finished" and (digest := runs.data_digest(Path(sweep.runs[name]))) is not None:
                self.data.fault(name, digest)
        self.started: dict[str, float] = {}
        self.recorded: dict[str, float] = {}  # what jobs' records said of their start: another time is of this one

    def run(self, waiting: Sequence[Point], slots: JobSlots) -> bool:
        """Run them all, as far as there are ``slots`` at once; whether it was stopped."""
        queue, stopped, self._slots = deque(waiting), False, slots
        with preparation.interrupts_into(self.processes.inbox):
            try:
                with self.display:
                    while queue or self.processes.running():
                        while queue and slots.admit(queue[0].name, self._trained()):
                            self._start(queue.popleft())
                        message = self.processes.next(time.monotonic() + _LOOK_S)
                        if isinstance(message, Interrupt):
                            stopped = True
                            break
                        self._look()
                        if isinstance(message, Exit):
                            self._end(message)
            finally:
                under_way = self.processes.running()
                self.processes.stop(self.way.stop_s)
        for name in under_way:  # some may have ended before they were told to stop
            self._read(name)
            if (fault := self._exchanged_data(name)) is not None:
                self._disown(name, fault)
            elif self._has_finished(name):
                self._finish(name)
            else:
                self.states[name].status = "stopped"
        return stopped

    def _trained(self) -> dict[str, bool]:
        """The running jobs, and whether each has trained a round since it started."""
        return {name: self.states[name].round > 0 for name in self.processes.running()}

    def _start(self, point: Point) -> None:
        fault = self._changed_files(point.name, file_digests(self.configs[point.name], _digest_of_file))
        if fault := fault or self.data.exchanged(point.name):
            self._fail(point.name, fault)
            return
        last, before = jobs.read(point.name), self.sweep.runs.get(point.name)
        again = before is not None and self._can_go_on(Path(before), last)
        if not again and not self._begin_run(point.name):
            return
        self.recorded[point.name] = last.started if last else 0.0
        # of jobs in turn on other machines, each may have the port that is open there
        overrides = sweep_plan.overrides_of(point, self.sweep.overrides, any_port=self.way.here or self._slots.most > 1)
        settings = _run_settings(Path(self.sweep.runs[point.name]), self.way.here)
        words = [f"--set={override}" for override in (*overrides, *settings)]
        options = ["--resume"] if again else []
        options += ["--supervise"] if self.supervise else []
        conf = str(sweep_records.conf_path(self.sweep.name))
        command = [
            sys.executable,
            "-m",
            "fedscale_ext.cli",
            "driver",
            self.way.command,
            conf,
            *words,
            *self.way.options,
            *options,
        ]
        environment = preparation.environment()
        for name in (PIPE_VARIABLE, EVENTS_VARIABLE):
            del environment[name]
        state = self.states[point.name]
        state.status, state.began = "running", time.monotonic()
        self.started[point.name] = time.time()
        environment |= {VARIABLE: self.source, **self._slots.environment(point.name)}
        self.processes.start(point.name, command, environment)
        self.display.started(point.name, "goes on from its checkpoint" if again else _beginning(before))

    def _can_go_on(self, run: Path, last: jobs.Job | None) -> bool:
        """Whether a run has a checkpoint; of one on another machine, the job's record tells."""
        if self.way.here:
            return has_checkpoint(run)
        if last is None or last.log_dir != run:
            return False
        return last.has_written_checkpoint(self.configs[last.name].job.checkpoint_interval)

    def _begin_run(self, name: str) -> bool:
        """Give a job a new run, and remember it as the sweep's; a job whose run cannot be remembered fails."""
        config, before = self.configs[name], dict(self.sweep.runs)
        log_path = str(Path(config.fedscale.log_path).absolute())
        self.sweep.runs[name] = str(runs.run_folder(log_path, name, runs.new_stamp(config)))
        try:
            sweep_records.write(self.sweep)
            return True
        except OSError as error:
            self.sweep.runs.clear()
            self.sweep.runs.update(before)
            self._fail(name, f"{error.filename} cannot be written ({error.strerror}); continue the sweep with --resume")
            return False

    def _look(self) -> None:
        """How far the running jobs are, from what their drivers remember; a job on exchanged data is ended."""
        for name in self.processes.running():
            self._read(name)
            if self._exchanged_data(name) is not None:
                self.processes.end(name)

    def _read(self, name: str) -> str | None:
        """Take over what a job's record says of this run; why it failed, if it says so."""
        with suppress(UserError):  # a record that is damaged is no reason to stop the others
            job, state = jobs.read(name), self.states[name]
            if job is not None and job.started != self.recorded[name]:
                state.notices = job.notices
                state.round = int(job.round["round"]) if job.round else state.round
                state.accuracy = job.accuracy if job.accuracy is not None else state.accuracy
                return job.reason
        return None

    def _end(self, gone: Exit) -> None:
        state = self.states[gone.name]
        reason = self._read(gone.name)
        if (fault := self._exchanged_data(gone.name)) is not None:
            return self._disown(gone.name, fault)
        if gone.code == 0:
            return self._finish(gone.name)
        error_lines = [line for line in self.processes.tails[gone.name] if line.startswith("fedscale: ")]
        state.status = "stopped" if gone.code == 130 else "failed"
        state.reason = error_lines[-1].removeprefix("fedscale: ") if error_lines else reason or gone.how
        self.display.ended(gone.name)

    def _finish(self, name: str) -> None:
        """Count a job whose driver is done, unless it read other files or data than the sweep began with."""
        fault = self._changed_files(name, earlier_run(Path(self.sweep.runs[name])).named_files)
        if fault := fault or self._exchanged_data(name):
            return self._disown(name, fault)
        state = self.states[name]
        state.status, state.took = "finished", time.monotonic() - state.began
        self.display.ended(name)

    def _has_finished(self, name: str) -> bool:
        """Whether a job's record says that it finished, in this sweep."""
        with suppress(UserError):
            job = jobs.read(name)
            return job is not None and job.started != self.recorded[name] and job.status == "finished"
        return False

    def _changed_files(self, name: str, digests: FileDigests) -> str | None:
        """A sentence where files of a job are others than when the sweep began, None where they are the same."""
        changed = differing_files(self.files[name], digests)
        if not changed:
            return None
        has, them = ("has", "it") if len(changed) == 1 else ("have", "them")
        return (f"{', '.join(changed)} {has} other contents than when the sweep began; restore {them}, and "
                "continue the sweep with --resume")  # fmt: skip

    def _exchanged_data(self, name: str) -> str | None:
        """A sentence where a job that was started has other data than the sweep began with, None elsewhere."""
        digest = runs.data_digest(Path(self.sweep.runs[name]), self.started[name] - _CLOCK_S)
        return None if digest is None else self.data.fault(name, digest)

    def _disown(self, name: str, reason: str) -> None:
        """Fail a job that had other files or data; its run is not the sweep's, and --resume starts it anew."""
        self.sweep.runs.pop(name)
        with suppress(OSError):  # a later job's run may not fit either, and says so
            sweep_records.write(self.sweep)
        self._fail(name, reason)

    def _fail(self, name: str, reason: str) -> None:
        self.states[name].status, self.states[name].reason = "failed", reason
        self.display.ended(name)


class _SweepData:
    """The data that the jobs of a sweep began with, and which of them were exchanged since.

    ``digests`` has those that a check found, by the jobs' names; for other data the first job that has them counts.
    """

    def __init__(self, configs: Sequence[JobConfig], digests: Mapping[str, str]):
        self._folder = {config.fedscale.job_name: config.fedscale.data_dir for config in configs}
        self._key = {config.fedscale.job_name: repr(data_settings(config.echo())) for config in configs}
        self._digest = {self._key[name]: digest for name, digest in digests.items()}
        self._exchanged: set[str] = set()  # keys

    def fault(self, name: str, digest: str) -> str | None:
        """A sentence where a job opened data with another ``digest`` than the sweep began with, None elsewhere."""
        key = self._key[name]
        if self._digest.setdefault(key, digest) == digest:
            return None
        self._exchanged.add(key)
        return self.exchanged(name)

    def exchanged(self, name: str) -> str | None:
        """A sentence where some job opened other data than the sweep began with, and this one would too; or None."""
        if self._key[name] not in self._exchanged:
            return None
        return (f"data_dir {self._folder[name]} holds other samples or clients than when the sweep began; put these "
                "back, and continue the sweep with --resume")  # fmt: skip


def _digest_of_file(path: Path) -> str:
    """The digest of a file. Folders are compared when the job has ended: reading them takes long."""
    if path.is_dir():
        raise IsADirectoryError(str(path))
    return digest_of(path)


def _beginning(before: str | None) -> str:
    """What is special about the start of a job without a checkpoint; ``before`` is its run in this sweep, if any."""
    return "" if before is None else "starts anew, for its run in this sweep has no checkpoint"


def _run_settings(run: Path, here: bool) -> list[str]:
    """``key=value`` that have a job write into the folder ``run``, which is log_path/logs/NAME/TIME.

    Where other machines run it, ``log_path`` stays as the configuration has it: a folder of each.
    """
    stamp = f"time_stamp={as_yaml(run.name)}"
    return [f"log_path={as_yaml(str(run.parents[2]))}", stamp] if here else [stamp]


def stop_with_sweep(conf: str) -> ConfFile | None:
    """In a driver that a sweep started: stop its job as soon as standard input ends, for then the sweep is gone.

    Returns the configuration ``conf`` under the name that the user's file has; None where no sweep started it.
    """
    source = os.environ.pop(VARIABLE, None)
    if not source:
        return None
    threading.Thread(target=_wait_for_end, name="sweep-pipe", daemon=True).start()
    return ConfFile(Path(source), read_conf(conf).content)


def _wait_for_end() -> None:
    with suppress(OSError):  # closed: as gone as ended
        while os.read(0, 4096):
            pass
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):  # nobody reads what it says any more
        os.dup2(nowhere, descriptor)
    os.kill(os.getpid(), signal.SIGTERM)
