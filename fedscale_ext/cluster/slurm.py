"""A job in a Slurm allocation, by submitit: one task per executor, the first of which also runs the aggregator.

Nodes share a file system: the tasks read what to do, and the job's token, from a folder of the submitting user, and the
first task writes there where it listens.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from fedscale_ext.config.executor_slots import slots_by_worker
from fedscale_ext.config.idle_settings import idle_keys
from fedscale_ext.config.job_config import JobConfig, load_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs, preparation, runs
from fedscale_ext.driver.job_checks import refuse_changed_data
from fedscale_ext.driver.preparation import AGGREGATOR
from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.progress import Display
from fedscale_ext.driver.run import has_finished, resume_keys
from fedscale_ext.transport.endpoint import is_loopback
from fedscale_ext.util.token import BYTES, write_token

_NEEDS = "submitit is not installed: run pip install 'fedscale_ext[slurm]'"
_LOOK_S = 0.2
_ADDRESS_S = 300.0  # longest wait of a task for the first one


def submit(
    conf: str, overrides: list[str], display: Display, *, resume: bool, resume_from: int | None,
    hours: float, options: Sequence[str], executor: str = "slurm",
) -> int:  # fmt: skip
    """Queue the job of a configuration; ``executor`` is what submitit calls the cluster. Exit code 0: it is queued."""
    config = load_config(conf, overrides)
    preparation.refuse_key(config)
    name = config.fedscale.job_name
    nodes, counts = _shape(config)
    more = _options(options)
    preparation.check_inputs(config)
    if idle := idle_keys(config):
        display.notice(idle)
    executor_class = _executor(executor)
    with jobs.claim(name):
        last = jobs.read(name)
        again = resume or resume_from is not None
        log_path, stamp = runs.choose_run(config, last, again, overrides, display.notice)
        if again:
            run = runs.run_folder(log_path, name, stamp)
            runs.check_unchanged(config, run)
            runs.check_rounds(config, run, last, resume_from=resume_from)
            refuse_changed_data(config, run, display)
            if resume and has_finished(config, last, run, display):
                return 0
        source = config.origin()
        job = jobs.Job(name, source, log_path, stamp, [], Proc.of("driver", os.getpid()), status="queued")
        folder = job.log_dir / "slurm"
        write_plan(config, folder, log_path=log_path, time_stamp=stamp, **resume_keys(resume, resume_from))
        parameters: dict[str, Any] = {
            "name": name,
            "nodes": nodes,
            "tasks_per_node": sum(counts),
            "timeout_min": max(1, round(60 * hours)),
        }
        if config.fedscale.use_cuda:
            parameters["gpus_per_node"] = len(counts)
        if executor == "slurm":
            parameters |= {"cpus_per_task": 2, "slurm_additional_parameters": more}
        queue = executor_class(folder=str(folder), cluster=executor)
        queue.update_parameters(**parameters)
        queued = queue.submit(run_task, str(folder))
        job.cluster = {"slurm": queued.job_id, "executor": executor, "folder": str(folder)}
        jobs.write(job)
    display.notice(
        f"job {name} is queued as {queued.job_id}; `fedscale driver status {name}` tells how it is, `fedscale driver "
        f"stop {name}` cancels it, its processes write to {folder}"
    )
    return 0


def state(job: jobs.Job) -> str:
    """State of a queued job as Slurm reports it, or that it has finished."""
    if (job.log_dir / "summary.json").is_file():
        return "finished"
    return str(_queued(job).state).lower()


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
    workers = slots_by_worker(config)
    counts = workers[0][1] if workers else []
    if any(other != counts for _, other in workers) or not sum(counts):
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
    (folder / "address").unlink(missing_ok=True)
    token = write_token(folder / "token", secrets.token_hex(BYTES))
    entries = [str(path) for path in config.entry_paths()]
    words = preparation.arguments(config, **shared, token_file=token)
    port = int(config.fedscale.ps_port)
    plan = {"entries": entries, "words": words, "port": port, "work_dir": os.getcwd()}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")


def run_task(folder: str) -> None:
    """One task of the allocation, as submitit runs it; RuntimeError where a process fails."""
    import submitit

    run_rank(Path(folder), submitit.JobEnvironment().global_rank)


def run_rank(folder: Path, rank: int) -> None:
    """Run executor ``rank + 1``, and the aggregator beside the first one, to their end."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    os.chdir(plan["work_dir"])
    aggregator, executor = plan["entries"]
    address = _announce(folder, plan["port"]) if rank == 0 else _await(folder)
    where = [f"--ps_ip={address['ip']}", f"--ps_port={address['port']}"]
    commands = {AGGREGATOR: [aggregator, *plan["words"][AGGREGATOR]]} if rank == 0 else {}
    name = f"executor {rank + 1}"
    commands[name] = [executor, *plan["words"][name]]
    env = preparation.environment()
    env.pop(preparation.EVENTS_VARIABLE)  # nobody listens
    running = {
        name: subprocess.Popen([sys.executable, *argv, *where], env=env, stdin=subprocess.PIPE)
        for name, argv in commands.items()
    }
    codes = {name: process.wait() for name, process in running.items()}  # they end when this process does
    failed = {name: code for name, code in codes.items() if code != 0}
    if AGGREGATOR in failed or (failed and AGGREGATOR not in codes):
        raise RuntimeError(", ".join(f"{name} ended with exit code {code}" for name, code in failed.items()))


def _announce(folder: Path, port: int) -> dict[str, Any]:
    """Choose where the aggregator listens, and tell the other tasks."""
    ip = host_address()
    with socket.create_server((ip, port)) as server:
        address = {"ip": ip, "port": server.getsockname()[1]}
    temporary = folder / "address.new"
    temporary.write_text(json.dumps(address), encoding="utf-8")
    os.replace(temporary, folder / "address")
    return address


def _await(folder: Path) -> dict[str, Any]:
    deadline = time.monotonic() + _ADDRESS_S
    while not (folder / "address").is_file():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the first task has not written {folder / 'address'} within {_ADDRESS_S:g} s")
        time.sleep(_LOOK_S)
    address: dict[str, Any] = json.loads((folder / "address").read_text(encoding="utf-8"))
    return address


def host_address() -> str:
    """An IPv4 address of this machine that others reach, where it has one."""
    addresses = [a.address for every in psutil.net_if_addrs().values() for a in every if a.family == socket.AF_INET]
    with contextlib.suppress(OSError):
        addresses.insert(0, socket.gethostbyname(socket.gethostname()))
    return next((address for address in addresses if not is_loopback(address)), "127.0.0.1")
