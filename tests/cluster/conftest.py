"""Three "hosts" on this machine: addresses of their own in 127.0.0.0/8, homes of their own, a stand-in for ssh."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tiny_job import tiny_data

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
Fedscale = Callable[..., "subprocess.Popen[str]"]


def wait_for(true: Callable[[], object], within_s: float = 400) -> None:
    deadline = time.monotonic() + within_s
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
        """Everything that runs on a host of this cluster, by its home."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("HOME", "").startswith(str(self.hosts)) and process.status() != "zombie":
                    found.append(process)
            except psutil.Error:
                pass
        return found

    def kill(self, host: str) -> None:
        """What a power cut does: all that runs on the host is gone at once."""
        for process in self.processes():
            try:
                if process.environ().get("FAKE_HOST") == host:
                    process.kill()
            except psutil.NoSuchProcess:
                pass

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(20)
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()


@pytest.fixture(scope="session")
def cluster_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_data(tmp_path_factory.mktemp("cluster-data"))


@pytest.fixture
def cluster(tmp_path: Path, cluster_data: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, cluster_data)
    yield made
    made.close()
    with suppress(AssertionError):
        wait_for(lambda: not made.processes(), 60)
    left = made.processes()
    for process in left:
        process.kill()
    assert not left, "processes were left on hosts"
