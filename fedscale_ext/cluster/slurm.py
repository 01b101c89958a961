"""Jobs and sweeps in Slurm's queue: what ``fedscale driver submit --slurm`` does on a login node."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fedscale_ext.cluster.slurm_queue import enqueue, queued_as, request, shape
from fedscale_ext.cluster.slurm_task import FOLDER, write_plan
from fedscale_ext.config.idle_settings import idle_keys
from fedscale_ext.config.job_config import JobConfig, load_config, read_conf
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs, preparation
from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.progress import Display, counted
from fedscale_ext.driver.resumption import checked_run, resume_keys
from fedscale_ext.driver.supervision import has_checkpoint, has_results
from fedscale_ext.driver.sweeps import sweep_plan, sweep_records
from fedscale_ext.driver.sweeps.sweep import ENDING
from fedscale_ext.driver.sweeps.sweep_records import Sweep
from fedscale_ext.report.job.loading import load_job


def submit(
    conf: str, overrides: list[str], display: Display, *, resume: bool, resume_from: int | None,
    hours: float, options: Sequence[str],
) -> int:  # fmt: skip
    """Queue the job of a configuration. Exit code 0: it is queued."""
    config = _checked(load_config(conf, overrides))
    name = config.fedscale.job_name
    asked = request(config, hours, options)
    if idle := idle_keys(config):
        display.notice(idle)
    with contextlib.ExitStack() as held:
        last = held.enter_context(_claim(name))
        job = _new_job(config, last, overrides, display, held, resume=resume, resume_from=resume_from)
        if job is None:
            return 0
        enqueue([job], job.log_dir / FOLDER, name, asked)
    display.notice(
        f"job {name} is queued as {job.cluster['slurm']}; `fedscale driver status {name}` tells how it is, `fedscale "
        f"driver stop {name}` cancels it, its processes write to {job.cluster['folder']}"
    )
    return 0


def submit_sweep(
    conf: str, overrides: list[str], display: Display, *, seeds: str | None, grid: Sequence[str], at_once: int | None,
    resume: bool, hours: float, options: Sequence[str],
) -> int:  # fmt: skip
    """Queue the jobs of a sweep as one array, of which ``at_once`` run side by side.

    ``resume`` leaves those that have all rounds.
    """
    file = read_conf(conf)
    plan = sweep_plan.read_plan(file, overrides, seeds, grid, _checked)
    plan.refuse_faults()
    first = plan.configs[0]
    if any(shape(config) != shape(first) or config.fedscale.use_cuda != first.fedscale.use_cuda
           for config in plan.configs):  # fmt: skip
        raise UserError(
            "the jobs of a sweep are one array under Slurm: worker_ips and use_cuda must be the same for all"
        )
    asked = request(first, hours, options, at_once)
    name = load_config(file, overrides).fedscale.job_name + ENDING
    for note in filter(None, (plan.repeats, idle_keys(*plan.configs))):
        display.notice(note)
    with contextlib.ExitStack() as held:
        held.enter_context(sweep_records.claim(name))
        lasts = [held.enter_context(_claim(point.name)) for point in plan.points]
        before = sweep_records.read(name) if resume else None
        folders = dict(before.runs) if before is not None else {}
        new = []
        for point, config, last in zip(plan.points, plan.configs, lasts, strict=True):
            again = (
                last is not None
                and str(last.log_dir) == folders.get(point.name)
                and (last.complete(config.fedscale.rounds) or has_checkpoint(last.log_dir))
            )
            job = _new_job(config, last, overrides, display, held, resume=again, resume_from=None)
            if job is not None:
                new.append(job)
                folders[point.name] = str(job.log_dir)
        values = sweep_records.tried(sweep_plan.read_grid(grid), before)
        left_out = sweep_records.left_out(plan.points, before)
        points = (*plan.points, *left_out)
        folder = Path(first.fedscale.log_path, "logs", name, FOLDER).absolute()
        held.enter_context(_removed_if_refused(folder))
        if new:
            enqueue(new, folder, name, asked)
        sweep_records.write_conf(name, file.content)
        sweep_records.write(Sweep(name, conf, tuple(overrides), values, points, Proc.of("sweep", os.getpid()), folders))
    if left_out:
        display.notice(sweep_records.left_out_sentence(left_out))
    done = len(plan.points) - len(new)
    if not new:
        display.notice(f"sweep {name}: nothing is queued, as all of these jobs are done; raise rounds to go on")
        return 0
    display.notice(
        f"sweep {name}: {counted(len(new), 'job')} queued as one array{f', {done} done before' if done else ''}; "
        f"`fedscale driver status {name}` tells how they are, `fedscale driver stop {name}` cancels them"
    )
    return 0


def _checked(config: JobConfig) -> JobConfig:
    """Check a job as far as this machine can tell; UserError if it cannot be queued."""
    preparation.refuse_key(config)
    jobs.check_name(config.fedscale.job_name)
    shape(config)
    preparation.check_inputs(config)
    return config


@contextlib.contextmanager
def _claim(name: str) -> Iterator[jobs.Job | None]:
    """Hold a job's name as drivers do, and yield the record of its last run; UserError if the job is in Slurm's queue,
    where nobody holds it."""
    with jobs.claim(name):
        last = jobs.read(name)
        if last is not None and (its := queued_as(last)):
            raise UserError(
                f"job {name} is in Slurm's queue already ({its}); take it out with `fedscale driver stop {name}`, or "
                "set another job_name"
            )
        yield _ended(last)


def _ended(last: jobs.Job | None) -> jobs.Job | None:
    """The record of a last run that is over; its results tell whether one that was queued finished, as no driver
    notes it."""
    if last is None or last.status != "queued" or not has_results(last.log_dir, last.started):
        return last
    try:
        trained = load_job(last.log_dir)
    except UserError:  # damaged, so it has to run
        return last
    rounds = {"round": trained.rounds_done, "rounds": trained.rounds_done, "asked": trained.rounds_asked}
    return replace(last, status="finished", stopped=trained.summary["stopped"], round=rounds)


@contextlib.contextmanager
def _removed_if_refused(folder: Path) -> Iterator[None]:
    """If the block ends with a UserError, remove the files of this submission from a folder ``slurm``.

    What the submission has written over is restored. The folder and the two above it go where nothing is left in them.
    """
    before = _submission_files(folder)
    times = {path: path.stat().st_mtime_ns for path in before}
    try:
        yield
    except UserError:
        for path in _submission_files(folder).keys() - before:
            path.unlink()
        for path, content in before.items():
            if path.read_bytes() != content:
                path.write_bytes(content)
                os.utime(path, ns=(times[path], times[path]))  # a requeued job takes checkpoints since its plan
        with contextlib.suppress(OSError):  # not empty
            for path in (folder, folder.parent, folder.parent.parent):
                path.rmdir()
        raise


def _submission_files(folder: Path) -> dict[Path, bytes]:
    """What a submission writes before Slurm gives it a number; queued jobs of a sweep write to the same folder."""
    names = ("plan.json", "token", ".submission_file_*.sh", f"{32 * '[0-9a-f]'}.pkl")
    return {path: path.read_bytes() for name in names for path in folder.glob(name)}


def _new_job(
    config: JobConfig, last: jobs.Job | None, overrides: list[str], display: Display, held: contextlib.ExitStack, *,
    resume: bool, resume_from: int | None,
) -> jobs.Job | None:  # fmt: skip
    """The record of a job that is to be queued, with what its tasks read in its folder; None if its ``last`` run has
    all rounds.

    ``held`` removes these files where the job is not queued.
    """
    run = checked_run(config, last, overrides, display, resume, resume_from)
    if run is None:
        return None
    job = jobs.Job(config.fedscale.job_name, config.origin(), *run, [], Proc.of("driver", os.getpid()), status="queued")
    preparation.make_log_dir(job, config, resume or resume_from is not None)
    held.enter_context(_removed_if_refused(job.log_dir / FOLDER))
    where = {"log_path": job.log_path, "time_stamp": job.time_stamp}
    write_plan(config, job.log_dir / FOLDER, **where, **resume_keys(resume, resume_from))
    return job
