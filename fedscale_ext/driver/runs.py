"""The runs of a job: the folder that a start writes into, and the earlier run that a resumed job continues."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from fedscale_ext.config.changed_settings import changed_settings, completed
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.config.method_params import changed_rounds
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.named_files import differing_files, file_digests
from fedscale_ext.driver.jobs import Job
from fedscale_ext.driver.supervision import checkpoints, has_checkpoint
from fedscale_ext.metrics.job_folder.earlier_run import EarlierRun, earlier_run
from fedscale_ext.metrics.job_folder.file_names import HEADER

START_ANEW = "resume it with the settings that it was started with, or start it anew without --resume"


def choose_run(
    config: JobConfig, last: Job | None, resume: bool, overrides: Sequence[str], notice: Callable[[str], None]
) -> tuple[str, str]:
    """``log_path`` and ``time_stamp`` of the job: new ones, or with ``resume`` those of the run that it continues.

    That is the run whose ``time_stamp`` one of the command's ``overrides`` names, else the last run. Where an override
    names another ``log_path``, a run there that has a checkpoint comes first: a copy of the last one, else the newest.
    Where the last run has no checkpoint, the newest run that has one stands in if its settings are the same, which
    ``notice`` tells. UserError where they are not, or the job has no run.
    """
    log_path, name = str(Path(config.fedscale.log_path).absolute()), config.fedscale.job_name
    if not resume:
        return log_path, new_stamp(config)
    named = {override.partition("=")[0].strip() for override in overrides}
    if "time_stamp" in named:
        return log_path, str(config.fedscale.time_stamp)
    last = existing(name, last)
    here = newest_checkpoint(Path(log_path, "logs", name))
    if here is not None and "log_path" in named and log_path != last.log_path:
        copied = has_checkpoint(run_folder(log_path, name, last.time_stamp))
        return log_path, last.time_stamp if copied else here
    if has_checkpoint(last.log_dir):
        return last.log_path, last.time_stamp
    before = newest_checkpoint(last.log_dir.parent)
    log_path, earlier = (last.log_path, before) if before is not None else (log_path, here)
    if earlier is None:
        return last.log_path, last.time_stamp
    _check_stand_in(config, last, run_folder(log_path, name, earlier))
    notice(f"the last run, {last.log_dir}, has no checkpoint; the job continues run {earlier}")
    return log_path, earlier


def existing(name: str, last: Job | None) -> Job:
    """Return the record of the last run of job ``name``, which is to be resumed; UserError where it has none."""
    if last is None:
        raise UserError(f"job {name} has no earlier run to resume; start it without --resume")
    return last


def _check_stand_in(config: JobConfig, last: Job, run: Path) -> None:
    """UserError where ``run``, which is not the ``last`` one, is not known to have the settings of ``config``."""
    before = earlier_run(run)
    if not before.config:
        fault = f"is of unknown settings: its {HEADER} cannot be read"
    elif changed := _changed(before, config, files_here=True):
        fault = f"has other settings: {changed}"
    else:
        return
    raise UserError(
        f"the last run of job {config.fedscale.job_name}, {last.log_dir}, has no checkpoint, and the run before it, "
        f"{run}, {fault}; start the job anew without --resume"
    )


def check_unchanged(config: JobConfig, run: Path, advice: str = START_ANEW, files_here: bool = True) -> None:
    """Refuse a ``run`` with other settings, or other contents of the files that they name, than the job has now.

    Files are compared if they lie on this machine (``files_here``). A run whose settings cannot be read passes: the
    aggregator compares them with those in the checkpoint.
    """
    before = earlier_run(run)
    if before.config and (changed := _changed(before, config, files_here)):
        raise UserError(f"job {config.fedscale.job_name} ran with other settings: {changed}; {advice}")


def _changed(before: EarlierRun, config: JobConfig, files_here: bool) -> str:
    """What differs, in words; empty where nothing does."""
    changed = [changed_settings(completed(before.config), config.echo())]
    if not changed[0] and isinstance(rounds := before.config.get("rounds"), int):
        changed.append(changed_rounds(rounds, config))
    if files_here and before.named_files:
        different = differing_files(before.named_files, file_digests(config))
        changed += [f"{name} had other contents" for name in different]
    return ", ".join(filter(None, changed))


def check_rounds(
    config: JobConfig, run: Path, last: Job | None, *, resume_from: int | None = None, anew: str = "it"
) -> None:
    """Refuse a ``run`` to resume, or a round to go back to, that is beyond the requested rounds.

    ``last`` is the record of the job's last run. ``anew`` is the command that the message advises, to start without
    --resume.
    """
    name, rounds = config.fedscale.job_name, config.fedscale.rounds
    advice = f"raise rounds, or start {anew} anew without --resume"
    if resume_from is not None:
        if resume_from > rounds:
            raise UserError(
                f"job {name} cannot go on after round {resume_from}: {rounds} rounds are asked for; {advice}"
            )
    elif (done := rounds_done(run, last)) > rounds:
        raise UserError(
            f"job {name} has done {done} rounds already, more than the {rounds} that are asked for; {advice}"
        )


def rounds_done(run: Path, last: Job | None) -> int:
    """Count the rounds that a run has done, by its record or else its newest checkpoint; 0 where neither tells."""
    if last is not None and last.log_dir == run and last.round:
        return int(last.round["round"])
    rounds = [path.stem.rpartition("-")[2] for path in checkpoints(run)]
    return max((int(round) for round in rounds if round.isdecimal()), default=0)


def data_digest(run: Path, since: float = 0.0) -> str | None:
    """The digest of the data that a run had; None where its header.json states none, as that of an earlier release, or
    is older than the time ``since``."""
    try:
        if (run / HEADER).stat().st_mtime < since:
            return None
    except OSError:
        return None
    return earlier_run(run).data_digest


def run_folder(log_path: str, name: str, time_stamp: str) -> Path:
    """Folder of logs and results of the run of job ``name`` with this ``time_stamp``."""
    return Path(log_path, "logs", name, time_stamp)


def new_stamp(config: JobConfig) -> str:
    """``time_stamp`` of a run that begins now, unless the configuration names one."""
    return config.fedscale.time_stamp if "time_stamp" in config.given else f"{datetime.now():%m%d_%H%M%S}"


def newest_checkpoint(runs: Path) -> str | None:
    """Name of the folder below ``runs``, a job's, whose checkpoint is the newest; None where none has one."""
    checkpoints = [
        (path.stat().st_mtime, path.parents[1].name) for path in runs.glob("*/checkpoints/checkpoint-*.safetensors")
    ]
    return max(checkpoints)[1] if checkpoints else None
