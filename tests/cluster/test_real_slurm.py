"""Jobs on a real Slurm: its controller and the daemons of two nodes on this machine, in a folder of the test.

The commands are those that a person would type on a login node. Where Slurm is not installed, test_slurm.py runs the
same jobs on submitit's local executor.
"""

import getpass
import json
import os
import platform
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from job_results import chain

import fedscale_ext
from cluster.conftest import Cluster, wait_for
from fedscale_ext.driver import jobs

DAEMONS = ("munged", "slurmctld", "slurmd")  # on Debian: apt-get install slurm-wlm munge
PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
NODES = ("node1", "node2")
STATES = ("PENDING", "RUNNING", "COMPLETING")  # of a job that the queue has


def lacks() -> str | None:
    """What is not installed of all that the tests need."""
    missing = [name for name in (*DAEMONS, "sbatch", "srun") if shutil.which(name, path=PLACES) is None]
    missing += ["submitit"] if find_spec("submitit") is None else []
    return f"not installed: {', '.join(missing)}" if missing else None


def free_ports(count: int) -> list[int]:
    with ExitStack() as servers:
        return [servers.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


class SlurmCluster(Cluster):
    """Two nodes with room for two executors each; jobs are submitted in ``home``, which they share."""

    def __init__(self, folder: Path, data: Path) -> None:
        super().__init__(folder, data)
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.slurm = folder / "slurm"
        (self.slurm / "state").mkdir(parents=True)
        self.env |= {"SLURM_CONF": str(self.slurm / "slurm.conf"), "TMPDIR": str(folder)}
        try:
            self._munge()
            self._nodes()
        except BaseException:
            self.close()
            raise

    def _munge(self) -> None:
        """The daemon whose credentials all of Slurm's programs trust."""
        key, socket_path = self.slurm / "munge.key", self.slurm / "munge.socket"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        files = {"socket": socket_path, "key-file": key, "pid-file": self.slurm / "munged.pid",
                 "log-file": self.slurm / "munged.log", "seed-file": self.slurm / "munged.seed"}  # fmt: skip
        options = [f"--{option}={path}" for option, path in files.items()]
        self._daemon("munged", "--foreground", "--force", "--num-threads=1", *options)
        wait_for(lambda: socket_path.exists() or self._gone(), 120)

    def _nodes(self) -> None:
        user, host = getpass.getuser(), platform.node().partition(".")[0]
        controller, *ports = free_ports(1 + len(NODES))
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={controller}",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self.slurm}/munge.socket",
            "CredType=cred/munge",
            f"StateSaveLocation={self.slurm}/state",
            f"SlurmdSpoolDir={self.slurm}/spool-%n",
            f"SlurmctldPidFile={self.slurm}/slurmctld.pid",
            f"SlurmdPidFile={self.slurm}/slurmd-%n.pid",
            "ProctrackType=proctrack/linuxproc",  # no control groups, which containers do not have
            "TaskPlugin=task/none",
            "MpiDefault=none",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "SchedulerParameters=sched_interval=1,batch_sched_delay=0",
            "SlurmdParameters=config_overrides",  # a node has the CPUs that are written here
            "MessageTimeout=100",
            "KillWait=2",
            "UnkillableStepTimeout=600",
            "ReturnToService=2",
            *(
                f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=4"
                for name, port in zip(NODES, ports, strict=True)
            ),
            f"PartitionName=all Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP",
        ]
        (self.slurm / "slurm.conf").write_text("\n".join(lines) + "\n")
        self._daemon("slurmctld", "-D", "-c", "-f", self.env["SLURM_CONF"])
        for name in NODES:
            self._daemon("slurmd", "-D", "-N", name, "-f", self.env["SLURM_CONF"])
        idle, sinfo = ["idle"] * len(NODES), ("sinfo", "-h", "-N", "-o", "%T")
        wait_for(lambda: self.ask(*sinfo, fails=True).split() == idle or self._gone(), 120)

    def _daemon(self, name: str, *words: object) -> None:
        path = str(shutil.which(name, path=PLACES))
        with (self.slurm / f"{name}-{len(self.daemons)}.out").open("w") as out:
            self.daemons.append(subprocess.Popen([path, *map(str, words)], env=self.env, stdout=out, stderr=out))

    def _gone(self) -> bool:
        """Fail if a daemon has ended; false."""
        ended = [daemon.args for daemon in self.daemons if daemon.poll() is not None]
        said = "".join(path.read_text() for path in self.slurm.glob("*.out"))
        assert not ended, f"{ended} ended: {said}"
        return False

    def ask(self, *words: str, fails: bool = False) -> str:
        """The output of one of Slurm's commands, which may fail if ``fails`` says so."""
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=120)
        assert fails or done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def queue(self) -> list[str]:
        """States of the jobs that Slurm still has in its queue."""
        return self.ask("squeue", "-h", "-r", "-t", ",".join(STATES), "-o", "%T").split()

    def conf(self, **cluster: object) -> Path:
        """A tiny job with an executor on each node."""
        return super().conf(**{"ps_ip": "127.0.0.1", "worker_ips": [f"{name}:[1]" for name in NODES], **cluster})

    def submit(self, *words: object) -> str:
        """What ``driver submit --slurm`` says, which must succeed."""
        process = self.fedscale("driver", "submit", *words, "--slurm", "--hours", "0.5")
        _, said = process.communicate(timeout=400)
        assert process.returncode == 0, said
        return said

    def status(self, job: str) -> dict[str, str]:
        """Facts that ``driver status`` prints of a job, by their names."""
        out, said = self.fedscale("driver", "status", job).communicate(timeout=400)
        lines = [line.partition(" ") for line in out.splitlines()]
        assert lines, said
        return {name: value.strip() for name, _, value in lines}

    def finished(self, job: str) -> None:
        """Wait until Slurm has no more jobs; fail if this one has no results then."""
        wait_for(lambda: not self.queue(), 900)
        record = self.job(job)
        said = "".join(path.read_text() for path in Path((record.cluster or {})["folder"]).glob("*_log.*"))
        assert (record.log_dir / "summary.json").is_file(), said

    def job(self, name: str) -> jobs.Job:
        """The record of a job."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FEDSCALE_EXT_STATE", self.env["FEDSCALE_EXT_STATE"])
            return jobs.find(name)

    def rounds(self, job: str) -> int:
        """How many rounds a job has done."""
        file = self.job(job).log_dir / "metrics.jsonl"
        return file.read_text().count("\n") if file.is_file() else 0

    def requeue(self, job: str) -> None:
        """What Slurm does with a job when one of its nodes fails: all tasks end, and begin anew later."""
        its = (self.job(job).cluster or {})["slurm"]
        self._process(0).suspend()  # so that the job cannot end before; Slurm ends it
        self.ask("scontrol", "requeue", its)
        wait_for(lambda: self.queue() == ["PENDING"] and not self.processes())
        self.ask("scontrol", "update", f"JobId={its}", "StartTime=now")  # it would wait for two minutes

    def processes(self) -> list[psutil.Process]:
        """Processes of Slurm's jobs: all that know this cluster but its daemons."""
        daemons, processes = {daemon.pid for daemon in self.daemons}, []
        for process in psutil.process_iter():
            try:
                of_cluster = process.environ().get("SLURM_CONF") == self.env["SLURM_CONF"]
                if of_cluster and process.pid not in daemons and process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
            except psutil.Error:
                pass
        return processes

    def close(self) -> None:
        super().close()
        try:
            if len(self.daemons) == 2 + len(NODES):
                self.ask("scancel", "--full", "--user", getpass.getuser(), fails=True)
                wait_for(lambda: not self.processes(), 120)
        finally:
            for daemon in reversed(self.daemons):
                daemon.terminate()
                try:
                    daemon.wait(30)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, cluster_data: Path) -> Iterator[SlurmCluster]:
    reason = lacks()
    if reason is not None:
        pytest.skip(f"no Slurm can be started here, {reason}")
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"), cluster_data)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def chain_here(cluster: SlurmCluster) -> Callable[..., list[str]]:
    """Digests of all rounds of the same job, run on this machine without Slurm."""
    known: dict[tuple[tuple[str, Any], ...], list[str]] = {}

    def run(**settings: Any) -> list[str]:
        key = tuple(settings.items())
        if key not in known:
            where = {"worker_ips": ["localhost:[1]"], "log_path": str(cluster.folder / f"here-{len(known)}")}
            fedscale_ext.run(cluster.conf(), **where, **settings)
            (log_dir,) = Path(where["log_path"], "logs/tiny").iterdir()
            known[key] = chain(log_dir)
        return known[key]

    return run


def test_a_job_on_two_nodes_is_that_of_one_machine(cluster: SlurmCluster, chain_here) -> None:
    said = cluster.submit(cluster.conf())
    record = cluster.job("tiny")
    assert f"job tiny is queued as {record.cluster['slurm']}; `fedscale driver status tiny`" in " ".join(said.split())
    cluster.finished("tiny")
    assert cluster.status("tiny")["status"] == "finished"
    assert chain(record.log_dir) == chain_here(seed=1)


def test_a_sweep_is_an_array_whose_jobs_are_those_of_one_machine(cluster: SlurmCluster, chain_here) -> None:
    said = cluster.submit(cluster.conf(), "--seeds", "1-2", "--at-once", "1")
    assert "2 jobs queued as one array" in " ".join(said.split())
    records = [cluster.job(f"tiny-s{seed}") for seed in (1, 2)]
    first, second = (record.cluster["slurm"].split("_") for record in records)
    assert first[0] == second[0] and (first[1], second[1]) == ("0", "1")
    for seed, record in zip((1, 2), records, strict=True):
        cluster.finished(record.name)
        assert chain(record.log_dir) == chain_here(seed=seed)
    out, _ = cluster.fedscale("driver", "status", "tiny-sweep").communicate(timeout=400)
    assert out.count("finished") == 2


def test_executors_that_die_join_again_and_a_requeued_job_goes_on(cluster: SlurmCluster, chain_here) -> None:
    rounds = 16
    patience = {"lease_s": 2, "register_timeout_s": 300, "replacement_s": 300}
    cluster.submit(cluster.conf(rounds=rounds, job_conf=patience))
    wait_for(lambda: cluster.rounds("tiny") >= 2 or not cluster.queue())
    with cluster.held():
        before = cluster.rounds("tiny")
        for number in (1, 2):
            cluster.kill_rank(number)
    wait_for(lambda: cluster.rounds("tiny") > before + 2 or not cluster.queue())  # by those that joined again
    assert before + 2 < cluster.rounds("tiny") < rounds
    cluster.requeue("tiny")
    cluster.finished("tiny")
    log_dir = cluster.job("tiny").log_dir
    assert chain(log_dir) == chain_here(rounds=rounds)
    said = [path.read_text() for path in (log_dir / "slurm").glob("*_log.out")]
    assert sum(text.count("the executor ended with exit code -9 and joins again") for text in said) == 2
    assert len(json.loads((log_dir / "summary.json").read_text())["resumed"]) == 1


def test_a_queued_job_is_shown_and_stopped(cluster: SlurmCluster) -> None:
    cluster.submit(cluster.conf(), "--slurm-option", "begin=now+1hour")
    assert cluster.queue() == ["PENDING"]
    assert cluster.status("tiny")["status"] == "pending"
    out, said = cluster.fedscale("driver", "stop", "tiny").communicate(timeout=400)
    assert (out, said) == ("job tiny is taken out of Slurm's queue\n", "")
    assert cluster.queue() == []
    assert cluster.status("tiny")["status"] == "cancelled"
