"""What a word on the command line stands for: a log folder, a job, a sweep, or the jobs of a sweep's arm."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs
from fedscale_ext.driver.jobs import DamagedRecord
from fedscale_ext.driver.sweeps import sweep_records
from fedscale_ext.metrics.job_folder.file_names import HEADER


class NamedJobs(NamedTuple):
    """Jobs that words name: log ``folders``, and names of a sweep's jobs that have not begun to train in it."""

    folders: list[Path]
    unbegun: list[str]


def find_jobs(words: Sequence[str]) -> NamedJobs:
    """The jobs that the words name, in their order, each once; UserError for a word that names none.

    A job's name stands for its last run, a sweep's and an arm's for the runs of that sweep.
    """
    return _joined([_find(word) for word in words])


def find_trained_job(word: str) -> Path:
    """Return the absolute log folder of the one job that a word names; UserError unless one has begun to train."""
    folders, unbegun = find_jobs([word])
    if len(folders) + len(unbegun) != 1 or not folders:
        raise UserError(f"{word} is not one job that has trained; name one job")
    return folders[0].absolute()


def find_existing_jobs(words: Sequence[str]) -> tuple[NamedJobs, list[str], dict[str, DamagedRecord]]:
    """The jobs that the words name, the words that name none, and those whose record is damaged.

    UserError if none of the words names a job.
    """
    each, unknown, damaged = [], [], {}
    errors: list[UserError] = []
    for word in dict.fromkeys(words):
        try:
            each.append(_find(word))
        except DamagedRecord as error:
            damaged[word] = error
            errors.append(error)
        except UserError as error:
            unknown.append(word)
            errors.append(error)
    if errors and not each:
        raise errors[0]
    return _joined(each), unknown, damaged


def _joined(each: Sequence[NamedJobs]) -> NamedJobs:
    folders = dict.fromkeys(folder for named in each for folder in named.folders)
    return NamedJobs(list(folders), list(dict.fromkeys(name for named in each for name in named.unbegun)))


def failures(folders: Sequence[Path]) -> dict[Path, str]:
    """Folder -> why its job failed, of those whose last run is there and failed."""
    reasons = {}
    for folder in folders:
        run = folder.resolve()
        job = jobs.read_intact(run.parent.name)  # FedScale's log folders are logs/job_name/time_stamp
        if job is not None and job.state() == "failed" and job.log_dir.resolve() == run:
            reasons[folder] = job.reason or "its driver ended without a word"
    return reasons


def _find(word: str) -> NamedJobs:
    path = Path(word)
    if (path / HEADER).is_file():
        return NamedJobs([path], [])
    # a sweep's arm may be called as a job is: then the job is meant
    runs = {} if word in jobs.names() else sweep_records.jobs_of(word)
    if not runs:
        if path.is_dir() and word not in jobs.names():  # a method's package may be called as its job
            raise UserError(f"{path} is no log folder of a job: it holds no {HEADER}{_below(path)}")
        return NamedJobs([jobs.find(word).log_dir], [])
    begun = {name: run for name, run in runs.items() if run is not None and (run / HEADER).is_file()}
    if not begun:
        raise UserError(f"no job of the sweep {word} has begun to train yet")
    return NamedJobs(list(begun.values()), [name for name in runs if name not in begun])


def _below(path: Path) -> str:
    """The end of a sentence that names the newest job in a folder of jobs, where there is one."""
    folders = [header.parent for pattern in ("*", "*/*") for header in path.glob(f"{pattern}/{HEADER}")]
    if not folders:
        return ""
    newest = max(folders, key=lambda folder: ((folder / HEADER).stat().st_mtime_ns, str(folder)))
    return f"; it holds {len(folders)} job{'s' if len(folders) > 1 else ''}, the newest is {newest}"
