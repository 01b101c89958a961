"""Executors of a job on a Ray cluster: an actor for each, which runs ``fedscale executor join`` on a node.

The aggregator runs where the job is submitted. One process beside it, ``python -m fedscale_ext.cluster.ray_executors``,
is a driver to Ray, and its actors live as long as it does. Ray chooses the nodes, waits for those that are missing, and
starts an actor again elsewhere when its node dies.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedscale_ext.cluster import joining
from fedscale_ext.config.arguments import expanded
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.core.events import print_event
from fedscale_ext.driver import preparation
from fedscale_ext.driver.crew import Crew
from fedscale_ext.driver.sweeps.sweep import Way
from fedscale_ext.transport.endpoint import host_address, is_loopback
from fedscale_ext.util.token import read_token, token_in_memory

ANY = "any"  # a host of worker_ips: whichever node has room
_NEEDS = "Ray is not installed: run pip install 'fedscale_ext[ray]', on the nodes too"
_ANSWER_S = 15.0  # longest wait for the cluster's address to answer
_LEAVE_S = 8.0  # for the other executors to leave, once one of them has heard that the job is over


def crew(address: str) -> Crew:
    """The process that brings a job's executors from the Ray cluster at ``address``; UserError without Ray."""
    if find_spec("ray") is None:
        raise UserError(_NEEDS)
    if "://" in address:
        raise UserError(f"--ray {address} is a client's address: submit on a node of the cluster, with --ray auto")
    if not re.fullmatch(r"auto|[^:\s]+:[0-9]{1,5}", address):
        raise UserError(f"--ray {address!r} is no address: write auto, or HOST:PORT as `ray start` prints it")

    def command(config: JobConfig, port: int, token_file: str) -> list[str]:
        order = {
            "ray": address,
            "words": [joining.address(aggregator_address(config), port), *joining.options(config)],
            "token_file": token_file,
            "work_dir": config.cluster.work_dir or os.getcwd(),
            "executors": [[host, share] for host, share in shares(config)],
        }
        return [sys.executable, "-m", "fedscale_ext.cluster.ray_executors", json.dumps(order)]

    return Crew("ray", address, aggregator_address, command)


def way(crew: Crew) -> Way:
    """How the jobs of a sweep are run with a :func:`crew`."""

    def prepared(config: JobConfig) -> JobConfig:
        config = preparation.hide_key(config)
        crew.command(config, 0, "")
        preparation.check_start(crew.without_executors(config))
        return config

    return Way("submit", prepared, here=False, options=crew.options)


def aggregator_address(config: JobConfig) -> str:
    """Where the aggregator listens: ``ps_ip``, or where that is loopback, this machine's address among the nodes."""
    return host_address() if is_loopback(config.fedscale.ps_ip) else config.fedscale.ps_ip


def shares(config: JobConfig) -> list[tuple[str, float]]:
    """The host of each executor in ``worker_ips``, and its share of a GPU: 1 / n of one on which n train."""
    return [
        (host, 1 / count if config.fedscale.use_cuda else 0.0)
        for host, counts in joining.slots(config, ANY)
        for count in counts
        for _ in range(count)
    ]


@dataclass(repr=False)
class Executor:
    """The actor: one executor after another on its node, each a process that ends with the actor.

    Attributes:
        words: Arguments of ``fedscale executor join`` but for the token's file.
        token: The job's token, which is written to no file here.
        work_dir: Folder in which relative paths begin.

    """

    words: list[str]
    token: bytes
    work_dir: str

    def __repr__(self) -> str:
        """What Ray writes before each line of output; without the token, which a dataclass would show."""
        return f"executor {self.words[-1]}"

    def work(self, pause_s: float) -> tuple[int, str]:
        """Join the job after a pause and work until it is over; the exit code and the last line of output."""
        time.sleep(pause_s)
        file = token_in_memory(self.token)
        descriptor = int(file.rpartition("/")[2])
        folder = Path(expanded("work_dir", self.work_dir)).expanduser()  # ~ and variables are the node's own
        try:
            process = subprocess.Popen(
                joining.command(self.words, file), cwd=folder, env=joining.environment(), pass_fds=[descriptor],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        except OSError as error:
            return joining.CANNOT, f"{error.filename}: {error.strerror}; set work_dir to a folder that all nodes have"
        finally:
            os.close(descriptor)
        line = ""
        for line in process.stdout or ():
            print(line, end="", flush=True)  # Ray brings it to the driver's output.log
        return process.wait(), one_line(line, 300).removeprefix("fedscale: ")


def run(order: Mapping[str, Any]) -> None:
    """Bring executors to a job until it is over; UserError if none of them can join."""
    os.environ |= {"RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0"}  # read when Ray is imported
    import ray

    host, _, port = order["ray"].rpartition(":")
    try:
        if host:
            socket.create_connection((host, int(port)), _ANSWER_S).close()  # Ray itself tries for minutes
        ray.init(order["ray"], logging_level="ERROR")
    except (OSError, RuntimeError, ValueError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {order['ray']}: {one_line(str(error), 200)}") from None
    actor = ray.remote(Executor)
    token = read_token(order["token_file"])
    nodes = _nodes(ray.nodes())
    actors = [
        actor.options(num_cpus=1, num_gpus=share, resources=_node(host, nodes), max_restarts=-1, max_task_retries=-1)
        .remote([*order["words"], "--number", str(number)], token, order["work_dir"])
        for number, (host, share) in enumerate(order["executors"], start=1)
    ]  # fmt: skip
    _bring(ray, actors)


def _nodes(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The address of each node that is there, by its address and by its name."""
    addresses = {node["NodeManagerHostname"]: node["NodeManagerAddress"] for node in nodes if node["Alive"]}
    return {**addresses, **{address: address for address in addresses.values()}}


def _node(host: str, nodes: Mapping[str, str]) -> dict[str, float]:
    """Ray's resource by which an executor stays on the node that worker_ips names; none for ANY."""
    if host == ANY:
        return {}
    if host not in nodes:
        known = ", ".join(sorted(nodes))
        raise UserError(f"worker_ips names {host}, which is no node of the Ray cluster ({known}): write {ANY}:[n]")
    return {f"node:{nodes[host]}": 0.001}


def _bring(ray: Any, actors: Sequence[Any]) -> None:
    """Have the actors join until one hears that the job is over; one that cannot join is given up."""
    working = {actor.work.remote(0.0): actor for actor in actors}
    failures: Counter[Any] = Counter()
    while working:
        (done,), _ = ray.wait(list(working), num_returns=1)
        actor = working.pop(done)
        try:
            code, last_line = ray.get(done)
        except ray.exceptions.RayError as error:  # the actor could not be made
            code, last_line = joining.CANNOT, one_line(str(error).strip().splitlines()[-1], 300)
        if code == joining.OVER:
            if working:
                ray.wait(list(working), num_returns=len(working), timeout=_LEAVE_S)
            return
        if code == joining.CANNOT and not working:
            raise UserError(last_line)
        if code == joining.CANNOT:
            print_event({"event": "notice", "message": f"an executor on Ray cannot join and is given up: {last_line}"})
        else:
            failures[actor] += 1
            working[actor.work.remote(joining.pause_s(failures[actor]))] = actor


if __name__ == "__main__":
    from fedscale_ext.cluster import ray_executors  # Ray knows the actor's class by this name, not as __main__'s
    from fedscale_ext.entry.launch import run_guarded  # loads torch

    run_guarded(lambda: ray_executors.run(json.loads(sys.argv[1])))
