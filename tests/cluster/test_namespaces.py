"""Three hosts with addresses, network and sshd of their own: namespaces that the test makes, where it may.

The commands are those that a person would type, by OpenSSH's own client and server; ``pytest -s`` shows what they said,
as evals/reliability/three_hosts.md has it. Where namespaces or sshd are not to
be had, test_submit.py runs the same jobs through a stand-in for ssh.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cluster.conftest import ROOT, Cluster, stopped_and_resumed, supervised, wait_for

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
NETWORK = "10.77.0"


def run(*words: object) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def lacks() -> str | None:
    """Why no hosts can be made here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if SSHD is None:
        return "sshd is not installed"
    name = f"fsx{os.getpid()}probe"
    try:
        run("ip", "netns", "add", name)
        run("ip", "netns", "delete", name)
    except AssertionError as error:
        return f"network namespaces are not allowed: {error}"
    return None


class Namespaces(Cluster):
    """Hosts .2, .3 and .4 on a bridge in the namespace of the machine that submits, .1."""

    addresses = tuple(f"{NETWORK}.{number}" for number in (2, 3, 4))

    def __init__(self, folder: Path, data: Path) -> None:
        super().__init__(folder, data)
        (self.bin / "ssh").unlink()  # the real one
        self.names = [f"fsx{os.getpid()}n{number}" for number in (1, 2, 3, 4)]
        self.prefix = ("ip", "netns", "exec", self.names[0])
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.hosts_config = self.home / "ssh_config"
        self._network()
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.home / "id")
        for name, address in zip(self.names[1:], self.addresses, strict=True):
            self._sshd(name, address)
        known = "".join(f"{address} {self._public(address)}\n" for address in self.addresses)
        (self.home / "known_hosts").write_text(known)
        self.hosts_config.write_text(
            f"UserKnownHostsFile {self.home}/known_hosts\nGlobalKnownHostsFile /dev/null\nUser root\n"
        )

    def _network(self) -> None:
        first = self.names[0]
        for name in self.names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", first, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", first, "address", "add", f"{NETWORK}.1/24", "dev", "bridge")
        run("ip", "-n", first, "link", "set", "bridge", "up")
        for port, (name, address) in enumerate(zip(self.names[1:], self.addresses, strict=True)):
            run("ip", "-n", first, "link", "add", f"port{port}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "-n", first, "link", "set", f"port{port}", "master", "bridge", "up")
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")

    def _public(self, address: str) -> str:
        return " ".join((self.hosts / address / "key.pub").read_text().split()[:2])

    def _sshd(self, name: str, address: str) -> None:
        home = self.hosts / address
        (home / "work").mkdir(parents=True)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / "key")
        env = {"FEDSCALE_EXT_STATE": home / "state", "PYTHONPATH": ROOT, "OMP_NUM_THREADS": 1, "XDG_CACHE_HOME": home,
               "FAKE_HOST": address}  # fmt: skip
        (home / "sshd_config").write_text(
            f"ListenAddress {address}\nHostKey {home}/key\nAuthorizedKeysFile {self.home}/id.pub\nStrictModes no\n"
            "UsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\n"
            "SetEnv " + " ".join(f"{key}={value}" for key, value in env.items()) + "\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        command = ["ip", "netns", "exec", name, str(SSHD), "-D", "-e", "-f", str(home / "sshd_config")]
        with (home / "sshd.log").open("w") as log:
            self.daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
        wait_for(lambda: "Server listening" in (home / "sshd.log").read_text(), 20)

    def conf(self, **cluster: object) -> Path:
        auth = {"ssh_config": str(self.hosts_config), "ssh_private_key": str(self.home / "id")}
        return super().conf(auth=auth, work_dir=str(self.hosts), **cluster)

    def show(self, command: str, code: int | None, *said: str) -> None:
        """For people: a command, what it said, and its exit code."""
        text = "".join(said).replace(str(self.folder), "")
        print(f"\n$ fedscale {command}\n{text.rstrip()}\n[exit code {code}]")

    def left(self) -> list[str]:
        """Numbers of the processes on all hosts but sshd's first."""
        daemons = {str(daemon.pid) for daemon in self.daemons}
        return [
            pid for name in self.names[1:] for pid in run("ip", "netns", "pids", name).split() if pid not in daemons
        ]

    def cut(self, number: int) -> None:
        """A power cut: nothing more comes from the host, and nothing runs on it."""
        print(f"\n({self.addresses[number - 1]} loses its power)")
        run("ip", "-n", self.names[number], "link", "set", "eth0", "down")
        for pid in run("ip", "netns", "pids", self.names[number]).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), 9)

    def close(self) -> None:
        super().close()
        for name in self.names:
            for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        for daemon in self.daemons:
            daemon.wait(10)


@pytest.fixture
def cluster(tmp_path: Path, cluster_data: Path) -> Iterator[Namespaces]:
    reason = lacks()
    if reason is not None:
        pytest.skip(f"no hosts can be made here: {reason}")
    tmp_path.chmod(0o755)
    cluster = Namespaces.__new__(Namespaces)
    cluster.started, cluster.daemons, cluster.names = [], [], []
    try:
        cluster.__init__(tmp_path, cluster_data)  # type: ignore[misc]
        yield cluster
    finally:
        cluster.close()


def test_a_host_loses_power_and_the_job_finishes(cluster: Namespaces) -> None:
    process = cluster.fedscale("driver", "submit", cluster.conf(rounds=60, job_conf={"lease_s": 2}))
    wait_for(lambda: cluster.record().get("round") or process.poll() is not None)
    with cluster.held():
        status = cluster.fedscale("driver", "status", "tiny").communicate(timeout=400)[0]
        cluster.cut(3)
    out, err = process.communicate(timeout=400)
    cluster.show("driver status tiny", 0, status)
    cluster.show("driver submit conf.yml", process.returncode, out, err)
    assert process.returncode == 0, err
    for address, first in zip(cluster.addresses, ("aggregator", "executor 2", "executor 3"), strict=True):
        assert f"{address}      {first} " in status
    assert "round 60/60" in out
    assert cluster.record()["status"] == "finished"
    wait_for(lambda: not cluster.left())  # what was just starting ends when it reads
    (folder,) = (cluster.home / "results/logs/tiny").iterdir()
    assert (folder / "summary.json").is_file()
    assert f"{cluster.addresses[0]} aggregator | " in cluster.output()


def test_stop_and_strange_keys(cluster: Namespaces) -> None:
    conf = cluster.conf(rounds=100000)
    process = cluster.fedscale("driver", "submit", conf)
    wait_for(lambda: cluster.record().get("round") or process.poll() is not None)
    out, err = cluster.fedscale("driver", "stop", "tiny").communicate(timeout=400)
    cluster.show("driver stop tiny", 0, out, err)
    assert (out, err) == ("job tiny is stopped\n", "")
    assert process.wait(60) == 130
    wait_for(lambda: not cluster.left())  # what was just starting ends when it reads

    known = cluster.home / "known_hosts"
    keys = known.read_text()
    last = cluster.addresses[2]
    for text, sentence in (
        (keys.replace(f"{last} {cluster._public(last)}\n", ""), f"the host key of {last} is not known"),
        (keys.replace(cluster._public(last), cluster._public(cluster.addresses[0])), f"{last} shows another host key"),
    ):
        known.write_text(text)
        process = cluster.fedscale("driver", "submit", conf)
        out, err = process.communicate(timeout=400)
        cluster.show("driver submit conf.yml", process.returncode, out, err)
        assert process.returncode == 2 and err.startswith(f"fedscale: {sentence}"), err
        wait_for(lambda: not cluster.left())  # what was just starting ends when it reads
    known.write_text(keys)
    cluster.cut(3)
    process = cluster.fedscale("driver", "submit", conf)
    out, err = process.communicate(timeout=400)
    cluster.show("driver submit conf.yml", process.returncode, out, err)
    assert process.returncode == 2
    assert err.startswith(f"fedscale: {last} cannot be reached by ssh ("), err
    wait_for(lambda: not cluster.left())  # what was just starting ends when it reads


def test_a_job_that_was_stopped_goes_on(cluster: Namespaces) -> None:
    stopped_and_resumed(cluster)
    wait_for(lambda: not cluster.left(), 60)


def test_what_dies_is_started_again_on_its_host(cluster: Namespaces) -> None:
    supervised(cluster)
    wait_for(lambda: not cluster.left(), 60)
