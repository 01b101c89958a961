"""Jobs that are resumed on other samples than they ran on are refused before any process of a job starts."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from fedscale_ext.cluster import slurm
from fedscale_ext.config.job_config import load_config
from fedscale_ext.data.job_data import open_job_data
from fedscale_ext.driver import job_checks as check
from fedscale_ext.driver import jobs
from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.sweeps import sweep, sweep_records
from fedscale_ext.driver.sweeps.sweep_records import Point, Sweep

from .conftest import FAKES, done, wait_until

NOBODY = Proc("driver", 1, 0.0)
KEYS = {"job_name": "tiny", "data_set": "femnist", "model": "cnn_small", "rounds": 1, "num_participants": 4,
        "local_steps": 1, "filter_less": 0, "use_cuda": False, "overcommitment": 1.0, "ps_port": "auto"}  # fmt: skip
OTHER = (
    "data_dir {} holds other samples or clients than when the job ran: put these back, or start anew without --resume"
)


@pytest.fixture
def data(tiny_femnist: Path, tmp_path: Path) -> Path:
    """A copy of the tiny data, to change."""
    return Path(shutil.copytree(tiny_femnist, tmp_path / "data"))


@pytest.fixture
def conf(data: Path, tmp_path: Path) -> Path:
    """A job on these data."""
    path = tmp_path / "job.yml"
    keys = {**KEYS, "data_dir": str(data), "log_path": str(tmp_path / "out")}
    path.write_text(yaml.safe_dump({"worker_ips": ["localhost:[1]"], "job_conf": [{key: keys[key]} for key in keys]}))
    return path


def write_run(conf: Path, name: str, status: str, **header: object) -> jobs.Job:
    """A run of a job that has done its only round, as far as its driver and its header say."""
    config = load_config(conf, [f"job_name={name}"])
    job = jobs.Job(name, str(conf), config.fedscale.log_path, "now", [], NOBODY, status=status, accuracy=0.5)
    job.round = {"round": 1, "rounds": 1}
    (job.log_dir / "checkpoints").mkdir(parents=True)
    (job.log_dir / "checkpoints" / "checkpoint-000001.safetensors").touch()
    content = {"config": config.echo(), "data": {"digest": open_job_data(config).digest}, **header}
    (job.log_dir / "header.json").write_text(json.dumps(content, default=str))
    jobs.write(job)
    return job


def change(data: Path) -> None:
    """Take a sample away."""
    path = data / "client_data_mapping" / "train.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")


@pytest.mark.parametrize("status", ["finished", "stopped"])
def test_a_job_is_not_resumed_on_other_data(call, state, conf, data, status):
    write_run(conf, "tiny", status)
    before = (state / "jobs" / "tiny" / "job.json").read_text()
    if status == "finished":
        code, _, err = call("driver", "start", conf, "--resume")
        assert code == 0 and "has finished its 1 rounds" in err
    change(data)
    for word in ("--resume", "--resume-from=1"):
        assert call("driver", "start", conf, word) == (2, "", f"fedscale: job tiny: {OTHER.format(data)}\n")
    assert (state / "jobs" / "tiny" / "job.json").read_text() == before


def test_a_job_is_not_resumed_where_clients_have_other_names(call, state, conf, data):
    """Reports and devices follow names: samples that are another client's are other data."""
    write_run(conf, "tiny", "stopped")
    train = data / "client_data_mapping" / "train.csv"
    header, *rows = (line.split(",", 1) for line in train.read_text().splitlines())
    first, second = list(dict.fromkeys(row[0] for row in rows))[:2]
    other = {first: second, second: first}
    rows = [[other.get(name, name), rest] for name, rest in rows]
    train.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    assert call("driver", "start", conf, "--resume") == (2, "", f"fedscale: job tiny: {OTHER.format(data)}\n")


@pytest.mark.parametrize("header", [{"data": {}}, {"data": {"digest": None}}])
def test_data_are_not_opened_for_a_run_that_states_no_digest(call, state, conf, data, monkeypatch, header):
    write_run(conf, "tiny", "finished", **header)
    change(data)
    monkeypatch.setattr(check, "_MODULE", "no_such_module")
    assert call("driver", "start", conf, "--resume")[0] == 0


def test_data_of_another_executor_and_data_that_a_command_brings_are_not_compared(call, state, conf, data, monkeypatch):
    write_run(conf, "tiny", "finished")
    change(data)
    monkeypatch.setattr(check, "_MODULE", "no_such_module")
    with monkeypatch.context() as outside:
        outside.setattr(check, "PACKAGE", Path("/nowhere"))
        assert call("driver", "start", conf, "--resume")[0] == 0
    shutil.rmtree(data)
    conf.write_text(conf.read_text() + "setup_commands: [env]\n")
    assert call("driver", "start", conf, "--resume")[0] == 0


def test_a_job_is_not_queued_again_on_other_data(call, state, conf, data, monkeypatch):
    monkeypatch.setattr(slurm, "request", lambda *_: {})
    write_run(conf, "tiny", "finished")
    change(data)
    words = ["driver", "submit", conf, "--slurm", "--resume"]
    assert call(*words) == (2, "", f"fedscale: job tiny: {OTHER.format(data)}\n")


def test_the_digest_of_a_check_counts_where_the_executor_is_this_packages(conf):
    event = {"event": "checked", "facts": [["data", "real"]], "notices": [], "digest": "11"}
    assert check._verdict(load_config(conf), event, False).digest == "11"
    keys = yaml.safe_load(conf.read_text()) | {"executor_entry": str(FAKES / "executor.py")}
    conf.write_text(yaml.safe_dump(keys))
    assert check._verdict(load_config(conf), event, False).digest is None


def test_a_sweep_compares_the_data_of_its_jobs_alone(call, state, conf, data, monkeypatch):
    write_run(conf, "tiny", "finished")
    monkeypatch.setattr(check, "_MODULE", "no_such_module")
    monkeypatch.setattr(sweep, "_wait_for_end", lambda: None)
    monkeypatch.setenv(sweep.VARIABLE, "conf.yml")
    assert call("driver", "start", conf, "--resume")[0] == 0


def test_a_sweep_is_not_resumed_on_other_data(call, state, conf, data):
    done = write_run(conf, "tiny-s0", "finished")
    points = (Point("tiny-s0", "tiny", 0, ("seed=0",)),)
    header = json.loads((done.log_dir / "header.json").read_text())
    header["config"]["seed"] = 0
    (done.log_dir / "header.json").write_text(json.dumps(header))
    sweep_records.write(Sweep("tiny-sweep", str(conf), (), {}, points, NOBODY, {"tiny-s0": str(done.log_dir)}))
    code, out, err = call("driver", "start", conf, "--seeds", "0", "--resume")
    assert (code, err) == (0, "") and "1 done before" in out
    before = sweep_records.read("tiny-sweep")
    change(data)
    code, out, err = call("driver", "start", conf, "--seeds", "0-1", "--resume")
    assert (code, out) == (2, "")
    assert err == f"fedscale: job tiny-s0 of the sweep: {OTHER.format(data)}\n"
    assert sweep_records.read("tiny-sweep") == before and jobs.names() == ["tiny-s0"]


def test_a_sweep_does_not_go_on_with_data_that_were_exchanged_while_it_ran(fedscale, state, conf, data):
    train = data / "client_data_mapping" / "train.csv"
    before = train.read_text()
    command = ("driver", "start", conf, "--seeds", "0-2", "--at-once", "1")
    process = fedscale(*command)
    wait_until(lambda: (job := jobs.read("tiny-s0")) and (job.log_dir / "header.json").exists(), 60)
    change(data)
    code, out, err = done(process)
    sentence = (f"data_dir {data} holds other samples or clients than when the sweep began; put these back, and "
                "continue the sweep with --resume")  # fmt: skip
    assert code == 1 and "tiny  1 of 3" in out
    assert f"tiny-s1: failed {sentence}" in err and f"tiny-s2: failed {sentence}" in err
    assert jobs.read("tiny-s2") is None and list(sweep_records.read("tiny-sweep").runs) == ["tiny-s0"]
    train.write_text(before)
    code, out, err = done(fedscale(*command, "--resume"))
    assert (code, "tiny  3 of 3" in out) == (0, True), err
