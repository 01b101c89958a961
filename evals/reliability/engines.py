"""One job on every engine, each of which loses a machine: the chain of digests must be that of one machine.

    /path/to/venv-with-ray/bin/python evals/reliability/engines.py           # the result goes to engines.md
    python evals/reliability/engines.py --engines joined ssh --rounds 100 --print

All engines run on this machine, with processes of their own for each node or host. Ray's nodes are real ones of a
local cluster. The hosts of ``ssh`` are addresses with a stand-in for the ssh client (three_hosts.md has real sshds).
Slurm is a real controller with two nodes, started for the job.
"""

import argparse
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from cluster.conftest import HOSTS, Cluster, wait_for  # noqa: E402
from cluster.test_real_slurm import SlurmCluster, lacks  # noqa: E402
from job_results import chain  # noqa: E402
from tiny_job import tiny_data  # noqa: E402

from evals.speed.machine import model_name  # noqa: E402
from fedscale_ext.transport.endpoint import host_address, is_loopback  # noqa: E402
from fedscale_ext.util.token import new_token  # noqa: E402

PAGE = Path(__file__).with_suffix(".md")
PATIENCE = {"lease_s": 2, "register_timeout_s": 300, "replacement_s": 300}


@dataclass(frozen=True)
class Ran:
    """How a job went on an engine: what happened to it, its chain after the last round, and wall seconds."""

    engine: str
    happened: str
    digest: str
    seconds: float


def rounds_of(cluster: Cluster) -> int:
    """Return how many rounds a cluster's job has done."""
    return int((cluster.record().get("round") or {}).get("round", 0))


def reached(cluster: Cluster, process: "subprocess.Popen[str]", rounds: int) -> None:
    """Wait until the job has done so many rounds; AssertionError if it ends before."""
    wait_for(lambda: rounds_of(cluster) >= rounds or process.poll() is not None)
    assert process.poll() is None, f"the job ended before round {rounds}: raise --rounds; {process.communicate()}"


def ended(cluster: Cluster, process: "subprocess.Popen[str]", name: str = "tiny") -> str:
    """Wait for the end of a job, and return its chain after the last round."""
    _, said = process.communicate(timeout=1200)
    assert process.returncode == 0, said
    (log_dir,) = (cluster.home / "results" / "logs" / name).iterdir()
    return chain(log_dir)[-1]


def alone(cluster: Cluster, rounds: int) -> tuple[str, str]:
    """One machine with two executors, undisturbed."""
    conf = cluster.conf(ps_ip="127.0.0.1", worker_ips=["localhost:[2]"], rounds=rounds)
    return "nothing", ended(cluster, cluster.fedscale("driver", "start", conf))


def joined(cluster: Cluster, rounds: int) -> tuple[str, str]:
    """A job without executors of its own, beyond loopback and so with TLS: one dies, one comes late, one leaves."""
    ip = host_address()
    assert not is_loopback(ip), "this machine has no address beside loopback"
    with socket.create_server((ip, 0)) as server:
        port = server.getsockname()[1]
    token = new_token(cluster.home / "token")
    keys = {**PATIENCE, "ps_port": port, "token_file": str(token)}
    conf = cluster.conf(ps_ip=ip, worker_ips=[], rounds=rounds, job_conf=keys)
    process = cluster.fedscale("driver", "start", conf)

    def join() -> "subprocess.Popen[str]":
        return cluster.fedscale("executor", "join", f"{ip}:{port}", "--token-file", token)

    present = [join(), join()]
    reached(cluster, process, rounds // 4)
    present[0].kill()
    reached(cluster, process, rounds // 2)
    join()
    reached(cluster, process, rounds * 3 // 4)
    present[1].send_signal(signal.SIGINT)
    return "of two, one was killed; a third came late; the second left", ended(cluster, process)


def ssh(cluster: Cluster, rounds: int) -> tuple[str, str]:
    """Three hosts, one of which loses its power."""
    conf = cluster.conf(rounds=rounds, job_conf=PATIENCE)
    process = cluster.fedscale("driver", "submit", conf)
    reached(cluster, process, rounds // 3)
    cluster.kill(HOSTS[2])
    return "one of three hosts was killed", ended(cluster, process)


def ray(cluster: Cluster, rounds: int) -> tuple[str, str]:
    """Two nodes with an executor each: one is killed, another one comes."""
    from cluster.test_ray import RayCluster

    nodes = RayCluster(cluster.folder / "ray", cluster.data)
    try:
        where: dict[str, Any] = {"ps_ip": "127.0.0.1", "worker_ips": ["any:[2]"], "work_dir": str(nodes.home)}
        conf = nodes.conf(**where, rounds=rounds, job_conf=PATIENCE)
        process = nodes.fedscale("driver", "submit", conf, "--ray", nodes.nodes.address)
        reached(nodes, process, rounds // 4)
        nodes.nodes.remove_node(nodes.added[0], allow_graceful=False)
        reached(nodes, process, rounds // 2)
        nodes.add()
        return "of two nodes, one was killed; another one came", ended(nodes, process)
    finally:
        nodes.close()


def slurm(cluster: Cluster, rounds: int) -> tuple[str, str]:
    """Two nodes with an executor each: one executor is killed, then Slurm queues the job again."""
    nodes = SlurmCluster(cluster.folder / "slurm", cluster.data)
    try:
        nodes.submit(nodes.conf(rounds=rounds, job_conf=PATIENCE))
        wait_for(lambda: nodes.rounds("tiny") >= rounds // 3 or not nodes.queue(), 1200)
        nodes.kill_rank(2)
        wait_for(lambda: nodes.rounds("tiny") >= rounds * 2 // 3 or not nodes.queue(), 1200)
        nodes.requeue("tiny")
        nodes.finished("tiny")
        return "an executor was killed; the job was queued again", chain(nodes.job("tiny").log_dir)[-1]
    finally:
        nodes.close()


ENGINES: dict[str, Callable[[Cluster, int], tuple[str, str]]] = {
    "one machine": alone, "joined": joined, "ssh": ssh, "slurm": slurm, "ray": ray,
}  # fmt: skip


def run(name: str, folder: Path, data: Path, rounds: int) -> Ran:
    """Run the job on an engine."""
    folder.mkdir()
    cluster, begun = Cluster(folder, data), time.monotonic()
    try:
        happened, digest = ENGINES[name](cluster, rounds)
    finally:
        cluster.close()
    return Ran(name, happened, digest, time.monotonic() - begun)


def page(rounds: int, results: list[Ran], load: float) -> str:
    """The recorded result."""
    rows = "\n".join(f"| {ran.engine} | {ran.happened} | {ran.seconds:.0f} | `{ran.digest[:16]}` |" for ran in results)
    equal = len({ran.digest for ran in results}) == 1
    verdict = "All digests are equal" if equal else "The digests DIFFER"
    return f"""# One job on every engine

`{" ".join(["python evals/reliability/engines.py", *sys.argv[1:]])}`, {date.today()}: FedAvg, {rounds} rounds, 4 of 7
generated clients; {os.cpu_count()} cores of {model_name()}, load {load:.0f}, Python {platform.python_version()}.

| engine | what happened to it | s | chain after the last round |
| --- | --- | ---: | --- |
{rows}

{verdict}. A chain holds the states, participants, code and data of all rounds
([what it covers](../../docs/reliability.md#runs-that-strangers-can-check)).

- **joined**: the aggregator listens beyond loopback. Messages are encrypted by TLS from the job's token.
- **ssh**: hosts are addresses of this machine with a stand-in for the ssh client.
  [Three hosts](three_hosts.md) has real sshds.
- **slurm**: a real controller and two nodes on this machine.
- **ray**: a real cluster of a head and two nodes on this machine.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--print", action="store_true", help="print the page instead of writing engines.md")
    arguments = parser.parse_args()
    if "ray" in arguments.engines and find_spec("ray") is None:
        parser.error("Ray is not installed: run pip install 'fedscale_ext[ray]', or name other --engines")
    if "slurm" in arguments.engines and (reason := lacks()):
        parser.error(f"Slurm cannot be started here, {reason}: install it, or name other --engines")
    load = os.getloadavg()[0]
    results = []
    with tempfile.TemporaryDirectory() as name:
        data = tiny_data(Path(name))
        for engine in arguments.engines:
            results.append(run(engine, Path(name, engine.replace(" ", "_")), data, arguments.rounds))
            print(f"{engine}: {results[-1].digest[:16]} in {results[-1].seconds:.0f} s", flush=True)
    text = page(arguments.rounds, results, load)
    if arguments.print:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
    assert len({ran.digest for ran in results}) == 1, "the digests differ"


if __name__ == "__main__":
    main()
