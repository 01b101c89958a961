"""Jobs on three "hosts" of this machine, where all but OpenSSH itself is what a cluster runs (see fake_ssh.py)."""

import json
import os
from pathlib import Path

import pytest

import fedscale_ext
from cluster.conftest import HOSTS, Cluster, stopped_and_resumed, supervised, wait_for
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver.run_lock import sole_writer


def test_a_host_is_killed_and_the_job_finishes_with_the_same_result(cluster: Cluster) -> None:
    conf = cluster.conf(rounds=30)
    process = cluster.fedscale("driver", "submit", conf)
    wait_for(lambda: cluster.record().get("round") or process.poll() is not None)
    with cluster.held():
        running = cluster.fedscale("driver", "status", "tiny").communicate(timeout=400)[0]
        cluster.kill(HOSTS[2])
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    assert f"note: executor 3 on {HOSTS[2]} was lost with its host (" in err
    assert "; the job goes on without it" in err
    for host, first in zip(HOSTS, ["aggregator", "executor 2", "executor 3"], strict=True):
        assert f"{host}      {first} " in running
    assert f"{HOSTS[0]} aggregator | " in cluster.output()
    wait_for(lambda: not cluster.processes())
    # no secret in what other users of a machine see, and no word of the YAML outside its quotes
    calls = (cluster.hosts / "calls").read_text()
    assert "token" not in calls and "log_path" not in calls
    # the results were brought here, and are those of one machine
    (log_dir,) = (cluster.home / "results/logs/tiny").iterdir()
    assert f"log_dir      {log_dir}\n" in out and f"{log_dir}/plot.png\n" in out
    assert not (log_dir / "checkpoints").exists() and (cluster.hosts / HOSTS[0] / "work/results").is_dir()
    summary = json.loads((log_dir / "summary.json").read_text())
    alone = fedscale_ext.run(conf, log_path=str(cluster.folder / "alone"), rounds=30)
    assert summary["accuracy"]["per_client"] == alone["accuracy"]["per_client"]
    assert summary["loss"] == alone["loss"]


def test_a_run_that_another_process_writes_here_is_left_alone(cluster: Cluster) -> None:
    conf = cluster.conf(worker_ips=[f"{HOSTS[0]}:[1]"], job_conf={"time_stamp": "t"})
    run = cluster.home / "results/logs/tiny/t"
    run.mkdir(parents=True)
    with sole_writer(run):
        process = cluster.fedscale("driver", "submit", conf)
        _, err = process.communicate(timeout=400)
        assert process.returncode == 2
        assert err.startswith(f"fedscale: the run {run} is written by process {os.getpid()} on ")
        assert [path.name for path in run.iterdir()] == [".lock"]
    process = cluster.fedscale("driver", "submit", conf)
    wait_for(lambda: (run / ".lock").is_file() or process.poll() is not None)
    with pytest.raises(UserError, match="is written by process"), sole_writer(run):
        pass
    assert process.wait(400) == 0
    assert (run / "summary.json").is_file() and not list(run.parent.rglob(".lock"))
    assert [path.name for path in run.parent.iterdir()] == ["t"]  # nothing was put aside


def test_results_come_from_a_log_path_in_the_hosts_own_home(cluster: Cluster) -> None:
    cluster.env["HOME"] = str(cluster.home)
    conf = cluster.conf(worker_ips=[f"{HOSTS[0]}:[1]"], job_conf={"log_path": "~/out"})
    process = cluster.fedscale("driver", "submit", conf)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    (there,) = (cluster.hosts / HOSTS[0] / "out/logs/tiny").iterdir()
    (here,) = (cluster.home / "out/logs/tiny").iterdir()
    assert (here / "summary.json").read_bytes() == (there / "summary.json").read_bytes()
    assert f"log_dir      {here}\n" in out and f"{here}/plot.png\n" in out


def test_stop_leaves_nothing_on_any_host(cluster: Cluster) -> None:
    process = cluster.fedscale("driver", "submit", cluster.conf(rounds=10000))
    wait_for(lambda: cluster.record().get("round") or process.poll() is not None)
    out, err = cluster.fedscale("driver", "stop", "tiny").communicate(timeout=400)
    assert (out, err) == ("job tiny is stopped\n", "")
    assert process.wait(60) == 130
    wait_for(lambda: not cluster.processes())
    assert not list(cluster.hosts.rglob("token"))
    assert cluster.record()["status"] == "stopped"


def test_a_job_that_was_stopped_goes_on(cluster: Cluster) -> None:
    stopped_and_resumed(cluster)


def test_what_dies_is_started_again_on_its_host(cluster: Cluster) -> None:
    supervised(cluster)


def test_a_sweep_runs_its_jobs_there_in_turn_and_goes_on_after_a_stop(cluster: Cluster) -> None:
    conf = cluster.conf(worker_ips=[f"{HOSTS[0]}:[1]"], rounds=30)
    words = ("driver", "submit", conf, "--seeds", "1-2")
    process = cluster.fedscale(*words)
    record = cluster.home / "state/jobs/tiny-s2/job.json"
    wait_for(lambda: (record.exists() and json.loads(record.read_text())["round"]) or process.poll() is not None)
    process.terminate()
    out, err = process.communicate(timeout=400)
    assert process.returncode == 130, err
    assert out.startswith("sweep tiny-sweep: 2 jobs, 1 at once\n")
    wait_for(lambda: not cluster.processes())
    process = cluster.fedscale(*words, "--resume")
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, (out, err)
    assert out.startswith("sweep tiny-sweep: 2 jobs, 1 at once, 1 done before\n")
    runs = json.loads((cluster.home / "state/sweeps/tiny-sweep.json").read_text())["runs"]
    alone = fedscale_ext.run(conf, log_path=str(cluster.folder / "alone"), rounds=30, seed=2)
    log_dir = Path(runs["tiny-s2"])  # here, and half of it before the stop
    assert log_dir.is_relative_to(cluster.home / "results")
    summary = json.loads((log_dir / "summary.json").read_text())
    assert summary["loss"] == alone["loss"] and summary["accuracy"]["per_client"] == alone["accuracy"]["per_client"]
    assert len(runs) == 2 and all((Path(run) / "summary.json").is_file() for run in runs.values())


def test_a_driver_that_is_killed_leaves_nothing_either(cluster: Cluster) -> None:
    process = cluster.fedscale("driver", "submit", cluster.conf())
    wait_for(lambda: len(list(cluster.hosts.rglob("hosts/*/*.json"))) == 4 or process.poll() is not None)
    process.kill()
    wait_for(lambda: not cluster.processes())
    assert not list(cluster.hosts.rglob("token"))


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("unknown key", "the host key of 127.0.0.3 is not known: connect once by hand with `ssh 127.0.0.3`"),
        ("no package", "127.0.0.3 has no fedscale_ext"),
        ("older", "127.0.0.3 has fedscale_ext 0.0.1, this machine 0.1.0: install the same on both"),
    ],
)
def test_a_host_that_cannot_take_part_is_named_and_nothing_begins(cluster: Cluster, fault: str, sentence: str) -> None:
    if fault == "older":
        old = cluster.folder / "old/fedscale_ext/cluster"
        old.mkdir(parents=True)
        (old.parent / "__init__.py").touch()
        (old / "__init__.py").touch()
        hello = {"event": "hello", "version": "0.0.1", "sources": ""}
        (old / "remote.py").write_text(f"print({json.dumps(hello)!r}, flush=True); import sys; sys.stdin.read()")
        fault = f"PYTHONPATH={cluster.folder}/old"
    cluster.fault(HOSTS[1], fault)
    process = cluster.fedscale("driver", "submit", cluster.conf())
    out, err = process.communicate(timeout=400)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"fedscale: {sentence}") and err.count("\n") == 1
    wait_for(lambda: not cluster.processes())


def test_a_host_with_other_data_is_named_and_nothing_begins(cluster: Cluster) -> None:
    from shutil import copytree

    for host in HOSTS[:2]:
        copytree(cluster.data, cluster.hosts / host / "work/data")
    table = cluster.hosts / HOSTS[1] / "work/data/client_data_mapping/train.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]) + "\n")
    conf = cluster.conf(worker_ips=[f"{host}:[1]" for host in HOSTS[:2]], job_conf={"data_dir": "data"})
    process = cluster.fedscale("driver", "submit", conf)
    _, err = process.communicate(timeout=400)
    assert process.returncode == 2
    assert err.splitlines()[-1] == (
        "fedscale: data_dir data holds other samples or clients on 127.0.0.3 than on 127.0.0.2: copy the folder anew"
    )
    wait_for(lambda: not cluster.processes())
