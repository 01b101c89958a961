"""A job on a real Ray cluster of several nodes on this machine: one node is killed, another one comes."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from job_results import chain

import fedscale_ext
from cluster.conftest import Cluster, wait_for

pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedscale_ext[ray]'")
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}  # room for one executor
PATIENCE = {"lease_s": 2, "register_timeout_s": 900, "replacement_s": 900}


class RayCluster(Cluster):
    """A head without room for executors, on which jobs are submitted, and two nodes with room for one each."""

    def __init__(self, folder: Path, data: Path) -> None:
        from ray.cluster_utils import Cluster as Nodes

        super().__init__(folder, data)
        with pytest.MonkeyPatch.context() as patch:
            for key, value in {**self.env, "HOME": str(self.hosts)}.items():
                patch.setenv(key, value)  # of all that runs on the nodes
            self.nodes = self.begun(lambda: Nodes(initialize_head=True, head_node_args={**NODE, "num_cpus": 0}))
            self.added = [self.add(), self.add()]

    def add(self) -> Any:
        return self.begun(lambda: self.nodes.add_node(**NODE))

    def begun(self, begin: Callable[[], Any]) -> Any:
        """A node, from the attempt that succeeds: Ray gives each 30 s, which may be too few on a busy machine."""
        for _ in range(9):
            with suppress(Exception):
                return begin()
        return begin()

    def executors(self) -> list[psutil.Process]:
        """The processes of executors on all nodes."""
        return [process for process in self.processes() if process.cmdline()[4:5] == ["executor", "join"]]

    def present(self) -> list[str]:
        """Numbers of the executors that work for the job."""
        return [line["executor"] for line in self.record().get("executors", ())]

    def close(self) -> None:
        super().close()
        self.nodes.shutdown()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, cluster_data: Path) -> Iterator[RayCluster]:
    cluster = RayCluster(tmp_path_factory.mktemp("ray"), cluster_data)
    yield cluster
    cluster.close()
    wait_for(lambda: not cluster.processes())


def test_a_node_is_killed_another_one_comes_and_the_result_is_that_of_one_machine(cluster: RayCluster) -> None:
    where: dict[str, Any] = {"ps_ip": "127.0.0.1", "worker_ips": ["any:[2]"], "work_dir": str(cluster.home)}
    conf = cluster.conf(**where, rounds=100_000, job_conf=PATIENCE)
    on_ray = ("driver", "submit", conf, "--ray", cluster.nodes.address)
    process = cluster.fedscale(*on_ray)

    def reached(true: Any) -> None:
        wait_for(lambda: process.poll() is not None or true())
        assert process.poll() is None, process.communicate()

    reached(lambda: cluster.record().get("round") and len(cluster.present()) == 2)
    token = (cluster.home / "state/jobs/tiny/token").read_text().strip()
    assert "executor 2" in cluster.output() and token not in cluster.output()  # Ray describes actors there
    cluster.nodes.remove_node(cluster.added[0], allow_graceful=False)
    reached(lambda: len(cluster.present()) == 1)
    before = cluster.record()["round"]["round"]
    reached(lambda: cluster.record()["round"]["round"] > before)  # it goes on with the other one
    cluster.add()
    reached(lambda: len(cluster.present()) == 2)
    before = cluster.record()["round"]["round"]
    reached(lambda: cluster.record()["round"]["round"] > before)
    out, err = cluster.fedscale("driver", "stop", "tiny").communicate(timeout=400)
    assert (out, err) == ("job tiny is stopped\n", "")
    assert process.wait(60) == 130
    wait_for(lambda: not cluster.executors())
    assert not list(cluster.folder.rglob("token"))

    rounds = cluster.record()["round"]["round"] + 2
    process = cluster.fedscale(*on_ray, "--resume", "--set", f"rounds={rounds}")
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    log_dir = Path(cluster.record()["log_path"], "logs/tiny", cluster.record()["time_stamp"])
    alone = fedscale_ext.run(conf, log_path=str(cluster.folder / "alone"), rounds=rounds, worker_ips=["localhost:[1]"])
    (undisturbed,) = (cluster.folder / "alone/logs/tiny").iterdir()
    assert len(chain(log_dir)) == rounds and chain(log_dir) == chain(undisturbed)
    summary = json.loads((log_dir / "summary.json").read_text())
    assert summary["accuracy"]["per_client"] == alone["accuracy"]["per_client"]
    wait_for(lambda: not cluster.executors())


def test_a_job_that_cannot_be_there_is_refused_in_a_sentence(cluster: RayCluster) -> None:
    for worker, address, sentence in (
        ("10.9.8.7:[1]", cluster.nodes.address, "worker_ips names 10.9.8.7, which is no node of the Ray cluster ("),
        ("any:[1]", "127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1: "),
        ("any", cluster.nodes.address, "worker_ips names any without slots: write any:[n]"),
        ("any:[1]", "ray://127.0.0.1:1", "--ray ray://127.0.0.1:1 is a client's address: "),
    ):
        conf = cluster.conf(worker_ips=[worker], ps_ip="127.0.0.1")
        process = cluster.fedscale("driver", "submit", conf, "--ray", address)
        _, err = process.communicate(timeout=400)
        assert process.returncode == 2, err
        assert err.splitlines()[-1].startswith(f"fedscale: {sentence}"), err
        assert "Traceback" not in err


def test_executors_that_cannot_join_end_the_job_with_their_reason(cluster: RayCluster) -> None:
    for work_dir, reason in ((str(cluster.home), "nowhere"), ("gone", "set work_dir to a folder that all nodes have")):
        conf = cluster.conf(
            ps_ip="127.0.0.1", worker_ips=["any:[2]"], work_dir=work_dir, job_conf={"data_dir": "nowhere"}
        )
        process = cluster.fedscale("driver", "submit", conf, "--ray", cluster.nodes.address)
        _, err = process.communicate(timeout=400)
        assert process.returncode == 2, err
        assert reason in err.splitlines()[-1]
        wait_for(lambda: not cluster.executors())
