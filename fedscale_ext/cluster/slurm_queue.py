"""Slurm's queue, by submitit: jobs enter it, several as one array, tell their state, and are cancelled."""

import contextlib
import io
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedscale_ext.cluster import joining
from fedscale_ext.cluster.slurm_task import FOLDER, run_task
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs
from fedscale_ext.driver.supervision import has_results

_IN_QUEUE = ("pending", "configuring", "running", "suspended", "stopped", "completing", "requeued", "requeue_hold")
"""States of a job that Slurm has not done with, as squeue calls them."""
_NOT_THERE = re.compile("Invalid job id|already completing or completed")
"""What scancel says of a job that it need not end: Slurm has forgotten it, or it ends anyway."""
_MOST_HOURS = 500_000  # Slurm counts seconds in 32 bits: longer limits become others
_NEEDS = "submitit is not installed: run pip install 'fedscale_ext[slurm]'"


def request(config: JobConfig, hours: float, options: Sequence[str], at_once: int | None = None) -> dict[str, Any]:
    """What a job asks of Slurm, as submitit's parameters, which ignores None; UserError if it cannot ask here."""
    if not 0 < hours <= _MOST_HOURS:
        raise UserError(f"--hours {hours:g} must be above 0 and at most {_MOST_HOURS:,}, as in --hours 8")
    nodes, counts = shape(config)
    more = _options(options)
    if find_spec("submitit") is None:
        raise UserError(_NEEDS)
    _check_programs()
    return {
        "nodes": nodes,
        "tasks_per_node": sum(counts),
        "cpus_per_task": 2,
        "gpus_per_node": len(counts) if config.fedscale.use_cuda else None,
        "timeout_min": max(1, round(60 * hours)),
        "slurm_array_parallelism": at_once,
        "slurm_additional_parameters": more,
        # the aggregator's failure ends the executors on other nodes; theirs fails no task
        "slurm_srun_args": ["--kill-on-bad-exit=1"],
    }


def enqueue(new: Sequence[jobs.Job], folder: Path, name: str, asked: Mapping[str, Any]) -> None:
    """Queue jobs with what :func:`request` asks, several as one array, and remember them.

    Their processes write to ``folder``.

    UserError where sbatch refuses them, does not say how it numbers them, or cannot be run.
    """
    from submitit import AutoExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    executor = AutoExecutor(folder=str(folder), cluster="slurm")
    executor.update_parameters(name=name, **asked)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # submitit prints sbatch's words before it raises them
            queued = executor.map_array(run_task, [str(job.log_dir / FOLDER) for job in new])  # of one job: no array
    except FailedJobError as error:
        words = _in_one_line(str(error)) or "it does not say why"
        raise UserError(
            f"sbatch does not take {name} ({words}): nothing is queued; look at --slurm-option, --hours and worker_ips"
        ) from None
    except FailedSubmissionError as error:
        words = _in_one_line(str(error).partition("\n")[0])
        raise UserError(
            f"sbatch does not tell the number of {name} ({words}): look with squeue whether it is queued, and end it "
            "with scancel"
        ) from None
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        raise UserError(f"{name} cannot be queued ({what}{error.strerror})") from None
    for job, its in zip(new, queued, strict=True):
        job.cluster = {"slurm": its.job_id, "folder": str(folder)}
        jobs.write(job)


def state(job: jobs.Job) -> str:
    """State of a queued job as Slurm reports it, or that it has finished.

    One that is resumed keeps the results of its last end until it starts: they are older than its record.
    """
    if has_results(job.log_dir, job.started):
        return "finished"
    _check_programs()
    number = job.cluster["slurm"]
    # clusters without accounting have no sacct, and the queue forgets what ended long ago
    states = _words("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={number}") or _words(
        "sacct", "--noheader", "--allocations", "--parsable2", "--format=State", f"--jobs={number}"
    )
    return states[0].lower() if states else "unknown"


def _words(*command: str) -> list[str]:
    """What one of Slurm's programs tells; nothing where it fails or is not installed."""
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.split()
    except OSError:
        return []


def queued_as(job: jobs.Job) -> str:
    """State of a job that Slurm has not done with; empty for another one."""
    its = state(job) if job.status == "queued" else ""
    return its if its in _IN_QUEUE else ""


def cancel(records: Sequence[jobs.Job]) -> int:
    """Take jobs out of the queue, or end them; how many Slurm had there.

    A job of unknown state was there if scancel takes it. UserError, when all were tried, for those that Slurm keeps.
    """
    _check_programs()
    ended, refused = 0, []
    for job in records:
        before = state(job)
        scancel = subprocess.run(["scancel", job.cluster["slurm"]], capture_output=True, text=True)
        gone = _NOT_THERE.search(scancel.stderr) is not None
        if scancel.returncode == 0:
            ended += before in (*_IN_QUEUE, "unknown") and not gone
        elif (its := state(job)) in (*_IN_QUEUE, "unknown") and not (gone and its in ("completing", "unknown")):
            refused.append((f"{job.name} ({its})", _in_one_line(scancel.stderr) or "scancel does not say why"))
    if refused:
        name, why = refused[0]
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise UserError(f"Slurm does not end job {name}{more}: {why}")
    return ended


def _check_programs() -> None:
    for program in ("sbatch", "srun", "squeue", "scancel"):
        if shutil.which(program) is None:
            raise UserError(f"there is no {program} here: run this command on a login node of a Slurm cluster")


def _in_one_line(words: str) -> str:
    """What a command of Slurm wrote, without the name that it begins each line with."""
    return "; ".join(re.sub(r"^\w+: (error: )?", "", line.strip()).rstrip(".") for line in words.strip().splitlines())


def shape(config: JobConfig) -> tuple[int, list[int]]:
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
