"""A task of a Slurm allocation: an executor that joins its job; the first task also runs the aggregator.

Nodes share a file system: the tasks read what to do, and the job's token, from a folder of the submitting user, and the
first task writes there where it listens.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from fedscale_ext.cluster import joining
from fedscale_ext.config.job_config import JobConfig, entry_path
from fedscale_ext.driver.supervision import checkpoints, resuming
from fedscale_ext.transport.endpoint import host_address
from fedscale_ext.util.atomic_files import write_atomic
from fedscale_ext.util.token import write_token

FOLDER = "slurm"  # below a job's, or a sweep's
_LOOK_S = 0.2
_ADDRESS_S = 300.0  # longest wait of a task for the first one
_LEAVE_S = 15.0  # for the first task's executor to leave when the job is over
_ASKED = (130, -signal.SIGTERM)  # exit codes of an executor that was asked to leave


def write_plan(config: JobConfig, folder: Path, **shared: Any) -> None:
    """Write what each task is to run, and the token, to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for address in folder.glob("address-*"):
        address.unlink()
    token = write_token(folder / "token", joining.token(config))
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
    plan_file = folder / "plan.json"
    plan = json.loads(plan_file.read_text(encoding="utf-8"))
    os.chdir(plan["work_dir"])
    starts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    address_file = folder / f"address-{starts}"  # where an earlier start listened is of no use
    work = (plan["executors"][rank], address_file, folder / "token")
    if rank > 0:
        _work(*work)
        return
    argv = plan["aggregator"]
    if starts > 0:
        argv = resuming(argv, folder.parent, _was_ready(folder.parent, plan_file))
    aggregator = _begin(argv, plan["port"], address_file)
    executor = threading.Thread(target=_work, args=work, daemon=True)
    executor.start()
    code = aggregator.wait()
    if code != 0:
        raise RuntimeError(f"the aggregator ended with exit code {code}")
    executor.join(_LEAVE_S)


def _was_ready(log_dir: Path, plan_file: Path) -> bool:
    """Whether an earlier start has written a checkpoint: before its first one, it has removed those of other runs.

    Under Slurm nobody hears that an aggregator is ready. One file system says both times.
    """
    began = plan_file.stat().st_mtime
    for path in checkpoints(log_dir):
        with suppress(FileNotFoundError):  # an aggregator removes old ones
            if path.stat().st_mtime >= began:
                return True
    return False


def _begin(argv: Sequence[str], port: int, address_file: Path) -> "subprocess.Popen[bytes]":
    """Start the aggregator on this node, at ``port`` or for 0 any free one, and tell the other tasks where."""
    ip = host_address()
    with socket.create_server((ip, port)) as server:
        port = server.getsockname()[1]
    # what a task starts ends with it, when its standard input does
    command = [sys.executable, *argv, f"--ps_ip={ip}", f"--ps_port={port}"]
    aggregator = subprocess.Popen(command, env=joining.environment(), stdin=subprocess.PIPE)
    write_atomic(address_file, joining.address(ip, port))
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
