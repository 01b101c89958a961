"""``fedscale driver``: start, stop, look at jobs."""

import sys
import time
from typing import Annotated

import typer

from fedscale_ext.cli import job_status
from fedscale_ext.cli.command_group import CommandGroup
from fedscale_ext.cli.driver_options import (
    AtOnce,
    Conf,
    Follow,
    Grid,
    Hours,
    JobName,
    JobOrSweep,
    On,
    OptionalJobName,
    Ray,
    Resume,
    ResumeFrom,
    Seeds,
    Set,
    Slurm,
    SlurmOption,
    SubmitAtOnce,
    Supervise,
)
from fedscale_ext.core.errors import UserError

app = typer.Typer(
    cls=CommandGroup,
    help="Run, stop and inspect jobs, on this machine or several.\n\nExample: fedscale driver start fedavg --on digits",
    no_args_is_help=True,
)
_FOLLOW_S = 0.2  # between two looks at a log that is followed


def _named(conf: str, on: str | None) -> str:
    """One text for a configuration, as the commands of the driver take it."""
    from fedscale_ext.config.presets import ON

    return conf if on is None else f"{conf}{ON}{on}"


def _refuse_resume_from(resume_from: int | None) -> None:
    if resume_from is not None:
        raise UserError("--resume-from goes back in one job; a sweep takes --resume")


def _refuse_at_once(at_once: int | None) -> None:
    if at_once is not None:
        raise UserError("--at-once is for sweeps: give --seeds or --grid too")


@app.command()
def start(
    conf: Conf, on: On = None, set_: Set = None, seeds: Seeds = None, grid: Grid = None, at_once: AtOnce = None,
    resume: Resume = False, resume_from: ResumeFrom = None, supervise: Supervise = False,
) -> None:  # fmt: skip
    """Run a job to its end: aggregator, executors, progress, results.

    With --seeds or --grid a sweep: a job for each seed and combination of values, as many at once
    as fit the machine's cores and memory, in one view. Ctrl-C stops all jobs; the same command with
    --resume continues unfinished ones.

    Exit code 0 if the job finished (all jobs of a sweep), 2 for bad input, 1 if it failed, 130 if it was stopped.

    Example: fedscale driver start heterofl --on digits --set rounds=50

    Example: fedscale driver start fedavg --on digits --seeds 0-4 --grid batch_size=5,9
    """
    from fedscale_ext.driver import run as driver
    from fedscale_ext.driver.progress import Display
    from fedscale_ext.driver.sweeps import sweep
    from fedscale_ext.driver.tables import console

    conf, out, err = _named(conf, on), console(), console(stderr=True)
    if seeds is not None or grid:
        _refuse_resume_from(resume_from)
        code = sweep.start(conf, set_ or [], out, err, seeds=seeds, grid=grid or [], at_once=at_once, resume=resume,
                           supervise=supervise)  # fmt: skip
        raise typer.Exit(code)
    _refuse_at_once(at_once)
    of_sweep = sweep.stop_with_sweep(conf)
    code = driver.start(of_sweep or conf, set_ or [], Display(out, err), resume=resume, resume_from=resume_from,
                        supervise=supervise, compare_data=of_sweep is None)  # fmt: skip
    raise typer.Exit(code)


@app.command()
def check(conf: Conf, on: On = None, set_: Set = None, seeds: Seeds = None, grid: Grid = None) -> None:
    """Check a job, or all jobs of a sweep, without starting any: settings, data, devices, models.

    Prints a description of each job, or the first reason why it cannot start. Data that no job has read
    yet are decoded.

    Exit code 0 if all can start, 2 if not.

    Example: fedscale driver check fedavg --on digits --seeds 0-4 --grid method=fedavg,fedprox
    """
    from fedscale_ext.driver import job_checks as checks
    from fedscale_ext.driver.tables import console

    out, err = console(), console(stderr=True)
    raise typer.Exit(checks.check(_named(conf, on), set_ or [], out, err, seeds=seeds, grid=grid or []))


@app.command()
def submit(
    conf: Conf, on: On = None, set_: Set = None, seeds: Seeds = None, grid: Grid = None, at_once: SubmitAtOnce = None,
    resume: Resume = False, resume_from: ResumeFrom = None, supervise: Supervise = False,
    ray: Ray = None, slurm: Slurm = False, hours: Hours = None, slurm_option: SlurmOption = None,
) -> None:  # fmt: skip
    """Run a job on the machines that its ps_ip and worker_ips name, by ssh, to its end.

    Host keys must be known, and ssh must log in to every host without a password. Before anything starts, all hosts
    are checked for the same code, versions and data. Results are copied to this machine. Exit codes are those of
    `driver start`.

    With --seeds or --grid a sweep, as in `driver start`: its jobs run on these machines one after another, or
    N at a time with --at-once N.

    With --ray, executors are actors on a Ray cluster, and the aggregator runs here, on one of its nodes. An
    entry any:[2] of worker_ips asks for two executors on nodes of Ray's choice.

    With --slurm, the job is queued instead, a sweep as an array. Each entry of worker_ips stands for a node of
    Slurm's choice.

    Example: fedscale driver submit job.yml --set ps_ip=10.0.0.1 --set 'worker_ips=["10.0.0.2:[4,4]"]'

    Example: fedscale driver submit job.yml --seeds 0-4 --grid method=fedavg,fedtrans

    Example: fedscale driver submit job.yml --ray auto --set 'worker_ips=["any:[8]"]'

    Example: fedscale driver submit job.yml --slurm --hours 8 --slurm-option partition=gpu
    """
    from fedscale_ext.driver.progress import Display
    from fedscale_ext.driver.tables import console

    conf, out, err = _named(conf, on), console(), console(stderr=True)
    display, sweeps = Display(out, err), seeds is not None or bool(grid)
    if slurm:
        from fedscale_ext.cluster import slurm as queue

        if ray is not None:
            raise UserError("--ray and --slurm are two ways to run a job: give one of them")

        if supervise:
            raise UserError(
                "--supervise restarts processes by ssh; leave it out under --slurm, which replaces executors that die"
            )
        hours, slurm_option = 24.0 if hours is None else hours, slurm_option or []
        if sweeps:
            _refuse_resume_from(resume_from)
            code = queue.submit_sweep(conf, set_ or [], display, seeds=seeds, grid=grid or [], at_once=at_once,
                                      resume=resume, hours=hours, options=slurm_option)  # fmt: skip
        else:
            _refuse_at_once(at_once)
            code = queue.submit(conf, set_ or [], display, resume=resume, resume_from=resume_from, hours=hours,
                                options=slurm_option)  # fmt: skip
        raise typer.Exit(code)
    if hours is not None or slurm_option:
        raise UserError("--hours and --slurm-option are for Slurm: give --slurm too")
    from fedscale_ext.cluster import submit as cluster
    from fedscale_ext.driver import run as driver
    from fedscale_ext.driver.sweeps import sweep

    crew, way = None, cluster.SUBMITTED
    if ray is not None:
        from fedscale_ext.cluster import ray_executors  # loads torch

        crew = ray_executors.crew(ray)
        way = ray_executors.way(crew)
    if sweeps:
        _refuse_resume_from(resume_from)
        code = sweep.start(conf, set_ or [], out, err, seeds=seeds, grid=grid or [], at_once=at_once, resume=resume,
                           supervise=supervise, way=way)  # fmt: skip
        raise typer.Exit(code)
    _refuse_at_once(at_once)
    of_sweep = sweep.stop_with_sweep(conf)
    if crew is not None:
        code = driver.start(of_sweep or conf, set_ or [], display, resume=resume, resume_from=resume_from,
                            supervise=supervise, crew=crew)  # fmt: skip
    else:
        code = cluster.submit(of_sweep or conf, set_ or [], display, resume=resume, resume_from=resume_from,
                              supervise=supervise)  # fmt: skip
    raise typer.Exit(code)


@app.command()
def render(
    conf: Conf,
    image: Annotated[str, typer.Option("--image", metavar="IMAGE", help="Container image with fedscale_ext.")],
    claim: Annotated[str, typer.Option("--claim", metavar="NAME", help="Volume claim of data and results.")],
    k8s: Annotated[
        bool, typer.Option("--kubernetes", "--k8s", help="Kubernetes manifests, the only kind there is.")
    ] = True,
    on: On = None,
    set_: Set = None,
) -> None:
    """Print manifests that run a job on Kubernetes: a Job of the aggregator, an indexed Job of executors that
    join it, and a Service. The first lines of the output say how to use it.

    Example: fedscale driver render --kubernetes job.yml --image registry/fedscale_ext:0.1 --claim data > job-k8s.yml
    """
    from fedscale_ext.cluster.kubernetes import render as manifests
    from fedscale_ext.config.job_config import load_config

    print(manifests(load_config(_named(conf, on), set_ or []), image, claim), end="")


@app.command()
def stop(job: JobOrSweep) -> None:
    """Stop a running job, or sweep, and wait until all of its processes are gone, on all of its hosts.

    A sweep can be stopped while its jobs are still being checked.

    Example: fedscale driver stop fedavg_digits
    """
    from fedscale_ext.driver import jobs
    from fedscale_ext.driver.sweeps import sweep_records

    claimant = sweep_records.claimant(job)  # a sweep has one before it has a record
    stopped = claimant is not None and sweep_records.stop(claimant)
    if (sweep := sweep_records.read(job)) is not None and claimant in (None, sweep.driver):
        records = [record for point in sweep.points if (record := jobs.read(point.name)) is not None]
        if queued := [record for record in records if "slurm" in record.cluster]:
            from fedscale_ext.cluster import slurm_queue

            number = slurm_queue.cancel(queued)
            if number == len(queued):
                print(f"the jobs of sweep {job} are taken out of Slurm's queue")
            elif number == 0:
                print(f"none of the jobs of sweep {job} was in Slurm's queue")
            else:
                verb = "is" if number == 1 else "are"
                print(
                    f"sweep {job}: {number} of {len(queued)} jobs {verb} taken out of Slurm's queue; no other was in it"
                )
            return
        stopped = sweep_records.stop(sweep.driver) or stopped
    if claimant is not None or sweep is not None:
        print(f"sweep {job} is {'stopped' if stopped else 'not running'}")
        return
    record = jobs.find(job)
    if "slurm" in record.cluster:
        from fedscale_ext.cluster import slurm_queue

        if slurm_queue.cancel([record]):
            print(f"job {job} is taken out of Slurm's queue")
        else:
            print(f"job {job} is not in Slurm's queue; its state is {slurm_queue.state(record)}")
        return
    stopped = jobs.stop(record)
    if "places" in record.cluster:
        from fedscale_ext.cluster.submit import leftovers

        for host, left in leftovers(record, end=True).items():
            for process in left:
                print(f"note: on {host}, {process}", file=sys.stderr)
    if stopped:
        print(f"job {job} is stopped")
    else:
        print(f"job {job} is not running; it {record.state()} {job_status.when(record.ended)}".rstrip())


@app.command()
def forget(job: JobName) -> None:
    """Remove an ended job from the list; its results stay where they are.

    Example: fedscale driver forget fedavg_digits
    """
    from fedscale_ext.driver import jobs

    record = jobs.find(job)
    if record.status == "queued":
        from fedscale_ext.cluster import slurm_queue

        if its := slurm_queue.queued_as(record):
            raise UserError(f"job {job} is in Slurm's queue ({its}); stop it first with `fedscale driver stop {job}`")
    results = jobs.forget(job)
    print(f"job {job} is forgotten; its results stay in {results}")


@app.command()
def status(job: OptionalJobName = None) -> None:
    """List the jobs started on this machine, or show one job with its hosts, or the jobs of a sweep.

    Example: fedscale driver status fedavg_digits
    """
    from fedscale_ext.driver import jobs
    from fedscale_ext.driver.sweeps import sweep_records
    from fedscale_ext.driver.tables import console, print_table

    of_sweep = sweep_records.jobs_of(job) if job is not None and job not in jobs.names() else {}
    if job is None or of_sweep:
        rows = [job_status.row_in_sweep(name, run) for name, run in of_sweep.items()] or [
            job_status.row(name) for name in jobs.names()
        ]
        if not rows:
            print("no job was started here yet; start one with: fedscale driver start fedavg --on digits")
            return
        print_table(console(), ["job", "status", "round", "accuracy", "started", "ended"], rows)
        return
    record = jobs.find(job)
    for title, value in job_status.facts(record).items():
        if value:
            print(f"{title:<14} {value}")


@app.command()
def logs(job: JobName, follow: Follow = False) -> None:
    """Print the output of the processes of a job's last run.

    Example: fedscale driver logs fedavg_digits -f
    """
    from fedscale_ext.driver import jobs

    record = jobs.find(job)
    if "slurm" in record.cluster:
        raise UserError(
            f"job {job} runs under Slurm: its processes write to {record.cluster['folder']}/*_log.out and .err"
        )
    if record.in_process:
        raise UserError(
            f"job {job} ran in a Python process, not in processes of its own; what it wrote is in {record.log_dir}"
        )
    with jobs.output_log(job).open(encoding="utf-8", errors="replace") as log:
        while True:
            ended = jobs.find(job).state() != "running"
            for line in log:
                print(line, end="", flush=follow)
            if ended or not follow:
                return
            time.sleep(_FOLLOW_S)
