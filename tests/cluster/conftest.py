"""Three "hosts" on this machine: addresses of their own in 127.0.0.0/8, homes of their own, a stand-in for ssh."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tiny_job import tiny_data

import fedscale_ext
from fedscale_ext.metrics.job_folder.restarts import count_restarts

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
Fedscale = Callable[..., "subprocess.Popen[str]"]


def wait_for(true: Callable[[], object], timeout_s: float = 400) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


class Cluster:
    """The hosts' homes in ``folder``, and the command on the machine that submits."""

    addresses: tuple[str, ...] = HOSTS
    prefix: tuple[str, ...] = ()  # of commands on the machine that submits

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder, self.data = folder, data
        self.hosts, self.home, self.bin = folder / "hosts", folder / "submitting", folder / "bin"
        for host in HOSTS:
            (self.hosts / host / "work").mkdir(parents=True)
        self.home.mkdir()
        self.bin.mkdir()
        ssh = self.bin / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("fake_ssh.py")} "$@"\n')
        ssh.chmod(0o755)
        self.env = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "FAKE_HOSTS": str(self.hosts),
            "FEDSCALE_EXT_STATE": str(self.home / "state"),
            "OMP_NUM_THREADS": "1",
        }
        self.started: list[subprocess.Popen[str]] = []

    def fault(self, host: str, what: str) -> None:
        (self.hosts / host / "fault").write_text(what)

    def conf(self, **cluster: object) -> Path:
        """A tiny job on all hosts: the aggregator and an executor on the first, an executor on each other one."""
        keys = {
            "ps_ip": self.addresses[0],
            "worker_ips": [f"{host}:[1]" for host in self.addresses],
            "work_dir": "work",
            "python": sys.executable,
            **cluster,
        }
        rounds = keys.pop("rounds", 2)
        flat = {"job_name": "tiny", "log_path": "results", "method": "fedavg", "data_set": "femnist", "rounds": rounds,
                "data_dir": str(self.data), "model": "nasbench201_base", "num_participants": 4, "local_steps": 2,
                "batch_size": 5, "eval_interval": 100, "filter_less": 0, "overcommitment": 1.0, "unit_size": 1,
                "cohort_size": 1, "use_cuda": False, "ps_port": 0}  # fmt: skip
        flat |= keys.pop("job_conf", {})  # type: ignore[call-overload]
        path = self.home / "conf.yml"
        path.write_text(yaml.safe_dump({**keys, "job_conf": [{key: value} for key, value in flat.items()]}))
        return path

    def fedscale(self, *words: object) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "fedscale_ext.cli", *map(str, words)],
            cwd=self.home, env=self.env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    def record(self) -> dict[str, Any]:
        """What the driver remembers of the job; empty before it began."""
        path = self.home / "state/jobs/tiny/job.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def output(self) -> str:
        return (self.home / "state/jobs/tiny/output.log").read_text()

    def processes(self) -> list[psutil.Process]:
        """Everything that runs on a host of this cluster, by its home or its folder of jobs."""
        processes = []
        for process in psutil.process_iter():
            try:
                folders = [process.environ().get(key, "") for key in ("HOME", "FEDSCALE_EXT_STATE")]
                if any(path.startswith(str(self.hosts)) for path in folders) and process.status() != "zombie":
                    processes.append(process)
            except psutil.Error:
                pass
        return processes

    def kill(self, host: str) -> None:
        """What a power cut does: all that runs on the host is gone at once."""
        for process in self.processes():
            try:
                if process.environ().get("FAKE_HOST") == host:
                    process.kill()
            except psutil.NoSuchProcess:
                pass

    def kill_rank(self, rank: int) -> None:
        """Kill the job's aggregator (0) or an executor, wherever it runs; its host goes on."""
        self._process(rank).kill()

    @contextmanager
    def held(self) -> Iterator[None]:
        """While the block runs, the aggregator does nothing, so that the job cannot end before what happens to it."""
        aggregator = self._process(0)
        aggregator.suspend()
        try:
            yield
        finally:
            aggregator.resume()

    def _process(self, rank: int) -> psutil.Process:
        (process,) = [process for process in self.processes() if self._rank(process.cmdline()) == rank]
        return process

    @staticmethod
    def _rank(words: list[str]) -> int | None:
        """The number of a process of the job, by its command line; not the shell's that started it."""
        if "--this_rank=0" in words:
            return 0
        return int(words[words.index("--number") + 1]) if "--number" in words else None

    def show(self, command: str, code: int | None, *said: str) -> None:
        """For people: a command, what it said, and its exit code; nothing by default."""

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(20)
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()


def same_as_alone(cluster: Cluster, conf: Path, rounds: int) -> None:
    """The job's results were brought here whole, and are those of one machine that was never interrupted."""
    log_dir = cluster.home / "results/logs/tiny" / cluster.record()["time_stamp"]
    summary = json.loads((log_dir / "summary.json").read_text())
    alone = fedscale_ext.run(conf, log_path=str(cluster.folder / "alone"), rounds=rounds)
    assert summary["accuracy"]["per_client"] == alone["accuracy"]["per_client"]
    assert summary["loss"] == alone["loss"]
    rounds_written = [json.loads(line)["round"] for line in (log_dir / "metrics.jsonl").read_text().splitlines()]
    assert rounds_written == list(range(1, rounds + 1))


def stopped_and_resumed(cluster: Cluster) -> None:
    """A job is stopped, and goes on from its checkpoint, which lies on the aggregator's host, to the end."""
    conf = cluster.conf(rounds=100000)
    process = cluster.fedscale("driver", "submit", conf)
    wait_for(lambda: (cluster.record().get("round") or {}).get("round", 0) >= 3 or process.poll() is not None)
    assert cluster.fedscale("driver", "stop", "tiny").communicate(timeout=400)[0] == "job tiny is stopped\n"
    assert process.wait(60) == 130
    assert "--resume continues it from its last checkpoint" in (process.communicate()[1] or "")
    before = cluster.record()
    rounds = before["round"]["round"] + 4
    # a job goes on where it is, whatever log_path says by now
    words = ("--resume", "--set", f"rounds={rounds}", "--set", "log_path=elsewhere")
    process = cluster.fedscale("driver", "submit", conf, *words)
    out, err = process.communicate(timeout=400)
    cluster.show(f"driver submit conf.yml {' '.join(words)}", process.returncode, out, err)
    assert process.returncode == 0, err
    after = cluster.record()
    assert (after["status"], after["round"]["round"]) == ("finished", rounds)
    assert (after["time_stamp"], after["log_path"]) == (before["time_stamp"], before["log_path"])
    first = next(line for line in out.splitlines() if line.startswith("round "))
    assert int(first.split()[1].partition("/")[0]) >= before["round"]["round"]  # it did not begin anew
    assert not list(cluster.folder.rglob("elsewhere"))
    same_as_alone(cluster, conf, rounds)


def supervised(cluster: Cluster) -> None:
    """An executor is killed, then the aggregator: each is started again on its host, and the job finishes."""
    rounds = 40
    conf = cluster.conf(rounds=rounds)
    process = cluster.fedscale("driver", "submit", conf, "--supervise")
    for rank, least in ((3, 2), (0, 6)):
        wait_for(lambda: (cluster.record().get("round") or {}).get("round", 0) >= least or process.poll() is not None)  # noqa: B023
        cluster.kill_rank(rank)
    out, err = process.communicate(timeout=400)
    cluster.show("driver submit conf.yml --supervise", process.returncode, out, err)
    assert process.returncode == 0, err
    for name, host in (("executor 3", cluster.addresses[2]), ("aggregator", cluster.addresses[0])):
        assert f"note: {name} on {host} was ended by SIGKILL after round " in err
    assert err.count("; it is started again") >= 2
    assert cluster.record()["status"] == "finished"
    same_as_alone(cluster, conf, rounds)
    log_dir = cluster.home / "results/logs/tiny" / cluster.record()["time_stamp"]
    counted = count_restarts(log_dir)
    assert counted["aggregator"] == 1 and counted["executor 3"] == 1
    assert json.loads((log_dir / "summary.json").read_text())["restarts"] == counted
    assert [path.name for path in log_dir.parent.iterdir()] == [log_dir.name]  # nothing was put aside


@pytest.fixture(scope="session")
def cluster_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_data(tmp_path_factory.mktemp("cluster-data"))


@pytest.fixture
def cluster(tmp_path: Path, cluster_data: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, cluster_data)
    yield cluster
    cluster.close()
    with suppress(AssertionError):
        wait_for(lambda: not cluster.processes(), 60)
    left = cluster.processes()
    for process in left:
        process.kill()
    assert not left, "processes were left on hosts"
