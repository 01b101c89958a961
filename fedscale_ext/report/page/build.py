"""From jobs' folders to a folder with report.html, plots as PNG and SVG, and the figures as CSV."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

from fedscale_ext.core.errors import UserError, enumerated
from fedscale_ext.report.compare.arms import Arm
from fedscale_ext.report.compare.comparison_table import comma_separated, table_rows
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import LoadedJob, NoRound, load_job
from fedscale_ext.report.page.page import Plot, page
from fedscale_ext.report.plots import comparison_plots, job_plots
from fedscale_ext.report.plots.figure_files import save
from fedscale_ext.util.atomic_files import write_atomic

_FILE_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}"
PAGE, FIGURES, PLOTS = "report.html", "figures.csv", "plots"


class Report(NamedTuple):
    """A report that was written: its ``page``, its jobs by arm, and which jobs it leaves out, in a sentence or ""."""

    page: Path
    arms: list[Arm]
    left_out: str


def build(
    folders: Sequence[Path],
    out: Path,
    unbegun: Sequence[str] = (),
    failures: Mapping[Path, str] | None = None,
    by_class: bool = False,
    follow: Callable[[Sequence[LoadedJob]], Iterable[LoadedJob]] = iter,
) -> Report:
    """Write the report of some jobs below ``out``, of those that have trained. UserError for bad input.

    ``unbegun`` names jobs that belong to the comparison and have no folder yet. ``failures`` says why jobs
    failed, by their folders. ``by_class``: the page shows figures of classes, too. ``follow`` takes the jobs and
    yields them one by one, so that a caller can show which one is being drawn.
    """
    jobs, without, damaged = _loaded(folders, failures or {})
    left_out = _left_out([*(job.name for job in without), *unbegun], len(jobs))
    left_out = " ".join(filter(None, [left_out, *(f"A job is left out: {error}." for error in damaged)]))
    jobs = _with_distinct_names(jobs)
    arms = arms_of(jobs)
    try:
        (out / PLOTS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out} cannot be written to: {error.strerror}; name another folder with -o") from None
    compared = [
        Plot(name, title, save(figure, out / PLOTS, name))
        for name, (title, figure) in comparison_plots.plots(arms).items()
    ]
    drawn = [job for arm in arms for job in arm.every_job]
    names = _folder_names([job.name for job in drawn])
    job_plots = {job.name: _job_plots(job, out / PLOTS, names[job.name]) for job in follow(drawn)}
    write_atomic(out / FIGURES, comma_separated(arms))
    rows = table_rows(arms, by_class)
    write_atomic(out / PAGE, page(_title(arms), arms, rows, compared, job_plots, left_out, by_class))
    return Report(out / PAGE, arms, left_out)


def _loaded(
    folders: Sequence[Path], failures: Mapping[Path, str]
) -> tuple[list[LoadedJob], list[NoRound], list[UserError]]:
    """The jobs, each once, those of which no round has ended, and errors of damaged ones.

    UserError where there is no job that can be shown.
    """
    jobs: list[LoadedJob] = []
    without: list[NoRound] = []
    damaged: list[UserError] = []
    why = {folder.resolve(): failure for folder, failure in failures.items()}
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        try:
            jobs.append(load_job(folder, why.get(folder, "")))
        except NoRound as error:
            without.append(error)
        except UserError as error:
            damaged.append(error)
    if jobs:
        return jobs, without, damaged
    if damaged:
        raise damaged[0]
    if len(without) == 1:
        raise without[0]
    names = ", ".join(job.name for job in without)
    raise UserError(f"no job here has a round that has ended: {names}" if names else
                    "a report needs a job: name one, or give its log folder")  # fmt: skip


def _left_out(names: Sequence[str], shown: int) -> str:
    """Which jobs the report leaves out beside those ``shown``, in a sentence; "" where there are none."""
    which, verb = ("it", "is") if len(names) == 1 else ("them", "are")
    text = f"{len(names)} of {len(names) + shown} jobs {verb} left out, as no round of {which} has ended: "
    return f"{text}{', '.join(names)}." if names else ""


def _folder_names(names: Sequence[str]) -> dict[str, str]:
    """The folder of each job's plots: its name, or another one where that is no file name, as a header may have."""
    plain = {name for name in names if re.fullmatch(_FILE_NAME, name)}
    free = (name for name in (f"job_{number}" for number in count()) if name not in plain)
    return {name: name if name in plain else next(free) for name in names}


def _job_plots(job: LoadedJob, folder: Path, name: str) -> list[Plot]:
    """A job's own plots in a folder of this name."""
    (folder / name).mkdir(exist_ok=True)
    return [
        Plot(f"{name}/{kind}", title, save(figure, folder / name, kind), kind == "models")
        for kind, (title, figure) in job_plots.plots(job).items()
    ]


def _title(arms: Sequence[Arm]) -> str:
    data = " and ".join(dict.fromkeys(arm.data for arm in arms))
    methods = list(dict.fromkeys(arm.jobs[0].header["method"] for arm in arms))
    return f"{enumerated(methods)} on {data}"


def _with_distinct_names(jobs: Sequence[LoadedJob]) -> list[LoadedJob]:
    """Runs of one job_name are told apart by their time stamp, and by a number where that is one, too."""
    names = [job.name for job in jobs]
    stamped = [job.name if names.count(job.name) == 1 else f"{job.name}_{job.folder.name}" for job in jobs]
    distinct: list[str] = []
    for name in stamped:
        numbered = (f"{name}_{number}" for number in count(2))
        free = (each for each in numbered if each not in stamped and each not in distinct)
        distinct.append(next(free) if name in distinct else name)
    return [
        job if job.name == name else replace(job, header={**job.header, "job_name": name})
        for job, name in zip(jobs, distinct, strict=True)
    ]
