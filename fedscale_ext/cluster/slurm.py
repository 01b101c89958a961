"""Jobs in Slurm allocations, by submitit: each task is an executor that joins, the first also runs the aggregator.

Nodes share a file system: the tasks read what to do, and the job's token, from a folder of the submitting user, and the
first task writes there where it listens.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from fedscale_ext.cluster import joining
from fedscale_ext.config.idle_settings import idle_keys
from fedscale_ext.config.job_config import JobConfig, entry_path, load_config, read_conf
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs, preparation, sweep_plan, sweeps
from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.progress import Display, counted
from fedscale_ext.driver.resumption import checked_run, resume_keys
from fedscale_ext.driver.supervision import has_checkpoint, resuming
from fedscale_ext.driver.sweep import ENDING
from fedscale_ext.driver.sweeps import Sweep
from fedscale_ext.report.end import drop_end
from fedscale_ext.transport.endpoint import host_address
from fedscale_ext.util.token import write_token

_NEEDS = "submitit is not installed: run pip install 'fedscale_ext[slurm]'"
_FOLDER = "slurm"  # below a job's, or a sweep's
# states of a job that Slurm has not done with, as squeue calls them
_IN_QUEUE = ("pending", "configuring", "running", "suspended", "stopped", "completing", "requeued", "requeue_hold")
_LOOK_S = 0.2
_ADDRESS_S = 300.0  # longest wait of a task for the first one
_LEAVE_S = 15.0  # for the first task's executor to leave when the job is over
_ASKED = (130, -signal.SIGTERM)  # exit codes of an executor that was asked to leave


def submit(
    conf: str, overrides: list[str], display: Display, *, resume: bool, resume_from: int | None,
    hours: float, options: Sequence[str], executor: str = "slurm",
) -> int:  # fmt: skip
    """Queue the job of a configuration; ``executor`` is what submitit calls the cluster. Exit code 0: it is queued."""
    config = _checked(load_config(conf, overrides))
    name = config.fedscale.job_name
    queue = _Queue(config, executor, hours, options)
    if idle := idle_keys(config):
        display.notice(idle)
    with _claim(name):
        job = _new_job(config, overrides, display, resume=resume, resume_from=resume_from)
        if job is None:
            return 0
        queue.submit([job], job.log_dir / _FOLDER, name)
    assert job.cluster is not None
    display.notice(
        f"job {name} is queued as {job.cluster['slurm']}; `fedscale driver status {name}` tells how it is, `fedscale "
        f"driver stop {name}` cancels it, its processes write to {job.cluster['folder']}"
    )
    return 0


def submit_sweep(
    conf: str, overrides: list[str], display: Display, *, seeds: str | None, grid: Sequence[str], at_once: int | None,
    resume: bool, hours: float, options: Sequence[str], executor: str = "slurm",
) -> int:  # fmt: skip
    """Queue the jobs of a sweep as one array, of which ``at_once`` run side by side; those that finished are left."""
    file = read_conf(conf)
    plan = sweep_plan.read_plan(file, overrides, seeds, grid, _checked)
    plan.refuse_faults()
    first = plan.configs[0]
    if any(_shape(config) != _shape(first) or config.fedscale.use_cuda != first.fedscale.use_cuda
           for config in plan.configs):  # fmt: skip
        raise UserError(
            "the jobs of a sweep are one array under Slurm: worker_ips and use_cuda must be the same for all"
        )
    queue = _Queue(first, executor, hours, options, at_once)
    name = load_config(file, overrides).fedscale.job_name + ENDING
    for note in filter(None, (plan.repeats, idle_keys(*plan.configs))):
        display.notice(note)
    with contextlib.ExitStack() as claims:
        claims.enter_context(sweeps.claim(name))
        for point in plan.points:
            claims.enter_context(_claim(point.name))
        before = sweeps.read(name) if resume else None
        folders = dict(before.runs) if before is not None else {}
        new = []
        for point, config in zip(plan.points, plan.configs, strict=True):
            last = jobs.read(point.name)
            again = last is not None and str(last.log_dir) == folders.get(point.name) and has_checkpoint(last.log_dir)
            job = _new_job(config, overrides, display, resume=again, resume_from=None)
            if job is not None:
                new.append(job)
                folders[point.name] = str(job.log_dir)
        sweeps.write_conf(name, file.content)
        queue.submit(new, Path(first.fedscale.log_path, "logs", name, _FOLDER).absolute(), name)
        values = sweeps.tried(sweep_plan.read_grid(grid), before)
        left_out = sweeps.left_out(plan.points, before)
        points = (*plan.points, *left_out)
        sweeps.write(Sweep(name, conf, tuple(overrides), values, points, Proc.of("sweep", os.getpid()), folders))
    if left_out:
        display.notice(sweeps.left_out_sentence(left_out))
    done = len(plan.points) - len(new)
    display.notice(
        f"sweep {name}: {counted(len(new), 'job')} queued as one array{f', {done} done before' if done else ''}; "
        f"`fedscale driver status {name}` tells how they are, `fedscale driver stop {name}` cancels them"
    )
    return 0


def _checked(config: JobConfig) -> JobConfig:
    """Check a job as far as this machine can tell; UserError if it cannot be queued."""
    preparation.refuse_key(config)
    jobs.check_name(config.fedscale.job_name)
    _shape(config)
    preparation.check_inputs(config)
    return config


@contextlib.contextmanager
def _claim(name: str) -> Iterator[None]:
    """Hold a job's name as drivers do; UserError if the job is in Slurm's queue, where nobody holds it."""
    with jobs.claim(name):
        last = jobs.read(name)
        if last is not None and last.status == "queued" and (its := state(last)) in _IN_QUEUE:
            raise UserError(
                f"job {name} is in Slurm's queue already ({its}); take it out with `fedscale driver stop {name}`, or "
                "set another job_name"
            )
        yield


def _new_job(
    config: JobConfig, overrides: list[str], display: Display, *, resume: bool, resume_from: int | None
) -> jobs.Job | None:
    """The record of a job that is to be queued, with what its tasks read in its folder; None if it has finished."""
    name = config.fedscale.job_name
    run = checked_run(config, jobs.read(name), overrides, display, resume, resume_from)
    if run is None:
        return None
    job = jobs.Job(name, config.origin(), *run, [], Proc.of("driver", os.getpid()), status="queued")
    drop_end(job.log_dir)  # it waits to go on
    where = {"log_path": job.log_path, "time_stamp": job.time_stamp}
    write_plan(config, job.log_dir / _FOLDER, **where, **resume_keys(resume, resume_from))
    return job


class _Queue:
    """Slurm's queue, as submitit has it, for jobs that ask for the same nodes."""

    def __init__(
        self, config: JobConfig, executor: str, hours: float, options: Sequence[str], at_once: int | None = None
    ) -> None:
        nodes, counts = _shape(config)
        more = _options(options)
        self.executor, self._class = executor, _executor(executor)
        self.parameters: dict[str, Any] = {
            "nodes": nodes,
            "tasks_per_node": sum(counts),
            "timeout_min": max(1, round(60 * hours)),
        }
        if config.fedscale.use_cuda:
            self.parameters["gpus_per_node"] = len(counts)
        if executor == "slurm":
            # the aggregator's failure ends the executors on other nodes; theirs fails no task
            self.parameters |= {"cpus_per_task": 2, "slurm_additional_parameters": more,
                                "slurm_srun_args": ["--kill-on-bad-exit=1"]}  # fmt: skip
            if at_once is not None:
                self.parameters["slurm_array_parallelism"] = at_once

    def submit(self, new: Sequence[jobs.Job], folder: Path, name: str) -> None:
        """Queue jobs, several as one array, and remember them; their processes write to ``folder``."""
        queue = self._class(folder=str(folder), cluster=self.executor)
        queue.update_parameters(name=name, **self.parameters)
        plans = [str(job.log_dir / _FOLDER) for job in new]
        queued = [queue.submit(run_task, plans[0])] if len(plans) == 1 else queue.map_array(run_task, plans)
        for job, its in zip(new, queued, strict=True):
            job.cluster = {"slurm": its.job_id, "executor": self.executor, "folder": str(folder)}
            jobs.write(job)


def state(job: jobs.Job) -> str:
    """State of a queued job as Slurm reports it, or that it has finished."""
    if (job.log_dir / "summary.json").is_file():
        return "finished"
    queued = _queued(job)
    assert job.cluster is not None
    if job.cluster["executor"] == "slurm":  # submitit asks sacct, which clusters without accounting do not have
        squeue = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job.cluster['slurm']}"]
        states = subprocess.run(squeue, capture_output=True, text=True).stdout.split()
        if states:  # else it has ended so long ago that the queue forgot it
            return states[0].lower()
    return str(queued.state).lower()


def cancel(job: jobs.Job) -> None:
    """Take a job out of the queue, or end it."""
    _queued(job).cancel(check=False)


def _queued(job: jobs.Job) -> Any:
    assert job.cluster is not None
    executor = _executor(job.cluster["executor"])(folder=job.cluster["folder"], cluster=job.cluster["executor"])
    return executor._executor.job_class(job.cluster["folder"], job.cluster["slurm"])


def _executor(cluster: str) -> Any:
    try:
        from submitit import AutoExecutor
    except ImportError:
        raise UserError(_NEEDS) from None
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise UserError("there is no sbatch here: run this command on a login node of a Slurm cluster")
    return AutoExecutor


def _shape(config: JobConfig) -> tuple[int, list[int]]:
    """Nodes, and executors on each GPU of one, from worker_ips, whose hosts' names Slurm chooses."""
    workers = joining.slots(config, "node")
    counts = workers[0][1]
    if any(other != counts for _, other in workers):
        raise UserError(
            "under Slurm each entry of worker_ips stands for a node, and all nodes run the same number of executors: "
            "write the same slots for each, as in node1:[2], node2:[2]"
        )
    return len(workers), counts


def _options(texts: Sequence[str]) -> dict[str, str]:
    options = {}
    for option in texts:
        key, equals, value = option.partition("=")
        if not equals or not re.fullmatch(r"[a-z][a-z-]*", key) or not value.isprintable():
            raise UserError(f"--slurm-option {option!r}: write it as sbatch has it, key=value, as in partition=gpu")
        options[key] = value
    return options


# ---- what the tasks do ----


def write_plan(config: JobConfig, folder: Path, **shared: Any) -> None:
    """Write what each task is to run, and the token, to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for address in folder.glob("address-*"):
        address.unlink()
    token = write_token(folder / "token", joining.token(config).hex())
    entry = str(entry_path(config.cluster.exp_path, config.cluster.aggregator_entry))
    plan = {
        "aggregator": [entry, *joining.aggregator_arguments(config, **shared, token_file=str(token))],
        "executors": joining.options_by_executor(config),
        "port": int(config.fedscale.ps_port),
        "work_dir": os.getcwd(),
    }
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")


def run_task(folder: str) -> None:
    """One task of the allocation, as submitit runs it; RuntimeError if the aggregator fails."""
    import submitit

    run_rank(Path(folder), submitit.JobEnvironment().global_rank)


def run_rank(folder: Path, rank: int) -> None:
    """Run executor ``rank + 1``, and the aggregator beside the first one, to their end.

    Slurm queues a job again if one of its nodes fails. The job then goes on from its checkpoint, on other nodes.
    """
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    os.chdir(plan["work_dir"])
    starts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    address_file = folder / f"address-{starts}"  # where an earlier start listened is of no use
    work = (plan["executors"][rank], address_file, folder / "token")
    if rank > 0:
        _work(*work)
        return
    argv = resuming(plan["aggregator"], folder.parent) if starts > 0 else plan["aggregator"]
    aggregator = _begin(argv, plan["port"], address_file)
    executor = threading.Thread(target=_work, args=work, daemon=True)
    executor.start()
    code = aggregator.wait()
    if code != 0:
        raise RuntimeError(f"the aggregator ended with exit code {code}")
    executor.join(_LEAVE_S)


def _begin(argv: Sequence[str], port: int, address_file: Path) -> "subprocess.Popen[bytes]":
    """Start the aggregator on this node, at ``port`` or for 0 any free one, and tell the other tasks where."""
    ip = host_address()
    with socket.create_server((ip, port)) as server:
        port = server.getsockname()[1]
    env = preparation.environment()
    env.pop(preparation.EVENTS_VARIABLE)  # nobody listens
    # what a task starts ends with it, when its standard input does
    command = [sys.executable, *argv, f"--ps_ip={ip}", f"--ps_port={port}"]
    aggregator = subprocess.Popen(command, env=env, stdin=subprocess.PIPE)
    temporary = address_file.with_name("address.new")
    temporary.write_text(joining.address(ip, port), encoding="utf-8")
    os.replace(temporary, address_file)
    return aggregator


def _work(options: Sequence[str], address_file: Path, token: Path) -> None:
    """Join the job, again after a failure, until it is over or this executor cannot join or is asked to leave."""
    command = joining.command([_await(address_file), *options], str(token))
    for failures in count(1):
        code = subprocess.Popen(command, env=joining.environment(), stdin=subprocess.PIPE).wait()
        if code in (joining.OVER, joining.CANNOT, *_ASKED):
            return
        print(f"the executor ended with exit code {code} and joins again", flush=True)
        time.sleep(joining.pause_s(failures))


def _await(address_file: Path) -> str:
    """The aggregator's address, once the first task has written it."""
    deadline = time.monotonic() + _ADDRESS_S
    while not address_file.is_file():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the first task has not written {address_file} within {_ADDRESS_S:g} s")
        time.sleep(_LOOK_S)
    return address_file.read_text(encoding="utf-8")
