"""How a job is resumed: all checks of the run that it continues, and where its aggregator begins."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedscale_ext.config.job_config import ConfFile, JobConfig
from fedscale_ext.driver import runs
from fedscale_ext.driver.job_checks import refuse_changed_data
from fedscale_ext.driver.jobs import Job
from fedscale_ext.driver.progress import Display


def checked_run(
    config: JobConfig, last: Job | None, overrides: Sequence[str], display: Display, resume: bool,
    resume_from: int | None, compare_data: bool = True,
) -> tuple[str, str] | None:  # fmt: skip
    """Choose the run that a start writes into; one to resume must have the job's settings, rounds and data.

    Args:
        config: The job.
        last: The record of its last run; None where it has none.
        overrides: Settings that the command gave beside the configuration.
        display: Shows notices, and the check of the data.
        resume: Whether the job continues from the last checkpoint.
        resume_from: The round after which it continues; None for none.
        compare_data: Whether the data are compared with those of the run.

    Returns:
        ``log_path`` and ``time_stamp`` of the run; None if all rounds of the run to resume are done.

    Raises:
        UserError: The run cannot be resumed.

    """
    resumed = resume or resume_from is not None
    log_path, time_stamp = runs.choose_run(config, last, resumed, overrides, display.notice)
    if resumed:
        run = runs.run_folder(log_path, config.fedscale.job_name, time_stamp)
        runs.check_unchanged(config, run)
        runs.check_rounds(config, run, last, resume_from=resume_from)
        if compare_data:
            refuse_changed_data(config, run, display)
        if resume and has_finished(config, last, run, display.notice):
            return None
    return log_path, time_stamp


def has_finished(config: JobConfig, last: Job | None, run: Path, notice: Callable[[str], None]) -> bool:
    """Tell whether the ``run`` to resume is the last one and has all requested rounds; if so, give a notice."""
    if last is None or last.log_dir != run:
        return False
    rounds = config.fedscale.rounds
    if not last.complete(rounds):
        return False
    ended = f"stopped before round {rounds} ({last.stopped})" if last.stopped else f"finished its {rounds} rounds"
    notice(f"job {last.name} has {ended}, results are in {last.log_dir}; raise rounds to go on")
    return True


def resume_keys(resume: bool, resume_from: int | None) -> dict[str, Any]:
    """The aggregator's keys for where it begins."""
    if resume_from is not None:
        return {"resume_from": resume_from}
    return {"resume": True} if resume else {}


def resume_advice(conf: str | ConfFile, origin: str, overrides: Sequence[str], command: Sequence[str]) -> str:
    """Say how a job that failed is continued.

    Args:
        conf: The configuration that the driver got; a sweep gives its jobs an open one.
        origin: Words by which a command names that configuration.
        overrides: Settings that the command gave beside it.
        command: Words after ``fedscale driver``.

    """
    if isinstance(conf, ConfFile):
        return "the sweep with --resume"
    settings = [word for each in overrides for word in ("--set", each)]
    words = ["fedscale", "driver", *command, *shlex.split(origin), *settings, "--resume"]
    return f"the job with `{shlex.join(words)}`"
