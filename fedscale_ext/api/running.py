"""``fedscale_ext.run``: a job from Python, within this process or as `fedscale driver start` does it."""

import os
import shlex
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from fedscale_ext.api.result import Result, load
from fedscale_ext.config.idle_settings import idle_keys
from fedscale_ext.config.job_config import JobConfig, load_config, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs, preparation, runs
from fedscale_ext.driver import run as driver
from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.progress import Display
from fedscale_ext.driver.run_lock import sole_writer
from fedscale_ext.driver.screen import in_notebook
from fedscale_ext.driver.supervision import can_go_on, has_checkpoint, has_results
from fedscale_ext.util.yaml_reading import as_yaml

if TYPE_CHECKING:
    from fedscale_ext.core.events import Emit


class _Progress(Display):
    """Shows how far a job is, beside what the caller prints; keeps the sentence of a failure for its exception."""

    sentence = "the job failed"
    ready = False  # the aggregator has said so

    def __init__(self, shown: bool):
        # a notebook paints standard error red, and passes for a terminal; elsewhere standard error keeps clear of what
        # a script prints
        console = Console(
            stderr=not in_notebook(),
            quiet=not shown,
            force_jupyter=False,
            force_terminal=False if in_notebook() else None,
        )
        super().__init__(console, console)

    def event(self, event: dict[str, Any]) -> None:
        """Show one event of the aggregator."""
        self.ready = self.ready or event["event"] == "ready"
        super().event(event)

    def error(self, sentence: str) -> None:
        """Why the job ended early."""
        self.sentence = sentence

    def summary(self, event: dict[str, Any], log_dir: str, output_log: str) -> None:
        """Nothing: the caller gets it."""


def run(conf: str | Path, overrides: Mapping[str, Any], *, processes: bool, progress: bool) -> Result:
    """See :func:`fedscale_ext.run`."""
    words = [f"{key}={as_yaml(value)}" for key, value in overrides.items()]
    config = load_config(conf, words)
    display = _Progress(progress)
    if processes:
        return _as_the_command(str(conf), words, config, display)
    from fedscale_ext.entry.isolation import isolated

    jobs.check_name(config.fedscale.job_name)
    with isolated(config.fedscale.use_cuda, display.notice):
        return _in_process(config, words, display)


def _in_process(config: JobConfig, words: list[str], display: _Progress) -> Result:
    from fedscale_ext.entry.in_process import run_in_process

    preparation.check_inputs(config)
    idle, name = idle_keys(config), config.fedscale.job_name
    if config.job.resumes:
        config = _continuing(config, words, display)
    log_path, stamp = str(Path(config.fedscale.log_path).absolute()), runs.new_stamp(config)
    job = jobs.Job(name, config.origin(), log_path, stamp, [], Proc.of("driver", os.getpid()), in_process=True)
    preparation.make_log_dir(job, config)
    config = with_values(config, time_stamp=job.time_stamp)
    try:
        with sole_writer(job.log_dir), jobs.leaving_nothing(job), _remembered(job, display) as emit, display:
            summary = run_in_process(config, _after_note(idle, display, emit))
    except KeyboardInterrupt:
        if has_results(job.log_dir, job.started):
            command = f"fedscale report {shlex.quote(str(job.log_dir))}"
            display.notice(f"job {name} is done, results are in {job.log_dir}; `{command}` draws it")
        else:
            how = (
                f"resume=True, time_stamp={job.time_stamp!r} among its arguments continues it from its last checkpoint"
            )
            if not can_go_on(job.log_dir, config.job.resumes, display.ready):
                how = "it has no checkpoint yet: start it anew"
            display.notice(f"job {name} was stopped; {how}")
        raise
    return load(summary["log_dir"])


def _after_note(note: str | None, display: Display, emit: "Emit") -> "Emit":
    """``emit``, before which a job that is ready is told the note: one that is refused hears only of the refusal."""

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "ready" and note is not None:
            display.notice(note)
        emit(event)

    return hear


@contextmanager
def _remembered(job: jobs.Job, display: Display) -> Iterator["Emit"]:
    """Keep the record of a run in this process, as the driver does of its own, so that its name finds it; what takes
    the run's events. A run that cannot be remembered trains all the same."""
    with ExitStack() as held:
        try:
            held.enter_context(jobs.claim(job.name))
            last = jobs.read(job.name)
            jobs.write(job)
        except (UserError, OSError) as error:
            display.notice(f"this run cannot be found by its name: {error}")
            held.close()
            yield display.event
            return

        def hear(event: dict[str, Any]) -> None:
            if job.note_event(event):
                with suppress(OSError):  # as in the driver: a full disk is told by the job itself
                    jobs.write(job)
            display.event(event)

        code = 1
        try:
            yield hear
            job.status = "finished"
        except KeyboardInterrupt:
            job.status = "finished" if has_results(job.log_dir, job.started) else "stopped"
            raise
        except UserError as error:
            job.status, job.reason, code = "failed", str(error), 2
            raise
        except BaseException as error:
            job.status, job.reason = "failed", f"{type(error).__name__}: {error}"
            raise
        finally:
            job.ended = time.time()
            with suppress(OSError):
                jobs.write(job)
                jobs.restore_after_refusal(job, last, code)


def _continuing(config: JobConfig, words: list[str], display: Display) -> JobConfig:
    """The configuration with the run that the resumed job continues: the one that ``time_stamp`` names, else the last.

    UserError where there is none, or where it had other settings.
    """
    name, log_path = config.fedscale.job_name, str(Path(config.fedscale.log_path).absolute())
    if "time_stamp" in config.given:
        stamp = config.fedscale.time_stamp
    else:
        last = None
        with suppress(UserError):  # a record that is damaged, or a folder that keeps none
            last = jobs.read(name)
        if last is not None:
            log_path, stamp = runs.choose_run(config, last, True, words, display.notice)
        else:
            stamp = runs.newest_checkpoint(Path(log_path, "logs", name)) or ""
        if not stamp or not has_checkpoint(runs.run_folder(log_path, name, stamp)):
            below = Path(log_path, "logs", name)
            raise UserError(f"job {name} has no checkpoint below {below}; start it without resume")
    runs.check_unchanged(config, runs.run_folder(log_path, name, stamp))
    return with_values(config, log_path=log_path, time_stamp=stamp)


def _as_the_command(conf: str, words: list[str], config: JobConfig, display: _Progress) -> Result:
    if threading.current_thread() is not threading.main_thread():
        raise UserError("processes=True needs the main thread, which an interrupt reaches; leave it out in others")
    code = driver.start(
        conf,
        [word for word in words if word.partition("=")[0] not in ("resume", "resume_from")],
        display,
        resume=config.job.resume,
        resume_from=config.job.resume_from,
        supervise=False,
    )
    if code == 130:
        display.notice(display.sentence)
        raise KeyboardInterrupt
    if code != 0:
        raise UserError(display.sentence)
    return load(jobs.find(config.fedscale.job_name).log_dir)
