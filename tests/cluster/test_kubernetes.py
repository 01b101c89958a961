"""The manifests are what Kubernetes takes, by its own schemas, and run what the configuration says."""

import shlex

import pytest
import yaml
from typer.testing import CliRunner

from cluster.conftest import ROOT
from fedscale_ext.cli.app import app
from fedscale_ext.cluster.kubernetes import render
from fedscale_ext.config.job_config import from_argv, make_config
from fedscale_ext.core.errors import UserError

validate = pytest.importorskip("kubernetes_validate")


def config(name="My_job", **flat):
    return make_config({"ps_ip": "10.0.0.1", "worker_ips": ["a:[1,1]", "b:[1]"]}, {"job_name": name, **flat})


@pytest.fixture(autouse=True)
def a_variable(monkeypatch):
    monkeypatch.setenv("DATA", "/d")


def documents(**flat):
    return list(yaml.safe_load_all(render(config(**flat), "registry.local:5000/fed@sha256:ab", "data")))


def test_they_are_valid_by_kubernetes_own_schemas():
    manifests = documents(data_dir="$DATA/a", use_cuda=True)
    assert [document["kind"] for document in manifests] == ["Service", "Job", "Job"]
    for document in manifests:
        for version in ("1.29", validate.latest_version()):
            validate.validate(document, version, strict=True)
    broken = documents()[1]
    broken["spec"]["template"]["spec"]["containers"][0]["image"] = 5
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, "1.29", strict=True)


def test_each_process_gets_its_arguments():
    service, aggregator, executors = documents(data_dir="$DATA/a", use_cuda=True, rounds=7)
    port = service["spec"]["ports"][0]["port"]
    for job in (aggregator, executors):
        spec = job["spec"]["template"]["spec"]
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert (service["spec"]["selector"].items() <= labels.items()) == (job is aggregator)
        secret = spec["volumes"][1]["secret"]
        assert secret == {"secretName": "my-job", "defaultMode": 0o400}
    (container,) = aggregator["spec"]["template"]["spec"]["containers"]
    seen = [word.replace("$(POD_IP)", "10.1.2.3").replace("$$", "$") for word in container["args"]]
    assert "--data_dir=$DATA/a" in seen and "resources" not in container
    read = from_argv([word for word in seen if not word.startswith("--data_dir")])
    assert (read.fedscale.this_rank, read.fedscale.num_executors, read.fedscale.rounds) == (0, 0, 7)
    assert (read.fedscale.ps_ip, read.fedscale.ps_port) == ("10.1.2.3", str(port))
    assert read.job.token_file == "/run/fedscale/token/token"
    assert aggregator["spec"]["backoffLimit"] == 0
    (container,) = executors["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "fedscale_ext.cli", "executor", "join"]
    assert container["args"] == [f"my-job:{port}", "--wait", "120", "--token-file", "/run/fedscale/token/token"]
    assert service["metadata"]["name"] == "my-job"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
    of_job = {key: executors["spec"][key] for key in ("completionMode", "completions", "parallelism")}
    assert of_job == {"completionMode": "Indexed", "completions": 3, "parallelism": 3}


def test_a_job_continues_a_run_whose_time_stamp_is_given():
    _, aggregator, _ = documents(resume=True, time_stamp="1126_214611")
    (container,) = aggregator["spec"]["template"]["spec"]["containers"]
    read = from_argv([word.replace("$(POD_IP)", "10.1.2.3") for word in container["args"]])
    assert (read.job.resume, read.fedscale.time_stamp) == (True, "1126_214611")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"resume": True}, "resume needs --set time_stamp=TIME"),
        ({"resume_from": 3}, "resume needs --set time_stamp=TIME"),
        ({"log_path": "/tmp/x"}, "log_path /tmp/x is not on the volume, which is mounted at /fedscale"),
        ({"data_dir": "~/femnist"}, "data_dir ~/femnist is not on the volume"),
        ({"log_path": "/fedscale/../etc"}, "log_path /fedscale/../etc is not on the volume"),
        ({"data_dir": "../femnist"}, "data_dir ../femnist is not on the volume"),
        ({"data_dir": "/fedscale2"}, "data_dir /fedscale2 is not on the volume"),
    ],
)
def test_what_a_pod_would_not_find_or_keep_is_refused(keys, sentence):
    with pytest.raises(UserError, match=sentence):
        documents(**keys)
    for path in ("/fedscale/out", "/fedscale", "/fedscale/", "/fedscale/a/../b", "out", ".", "$DATA/../out"):
        assert documents(log_path=path, data_dir="data/femnist")


def test_the_first_lines_say_how_to_continue_the_run():
    text = render(config(time_stamp="1126_214611"), "image", "data")
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert any("kubectl delete jobs -l fedscale-job=my-job" in line for line in head)
    assert any("--set resume=True --set time_stamp=1126_214611" in line for line in head)


def test_executors_join_as_the_command_reads_it(monkeypatch):
    joined = []
    monkeypatch.setattr("fedscale_ext.entry.join.join", lambda options, wait, say: joined.append(options))
    (container,) = documents()[2]["spec"]["template"]["spec"]["containers"]
    assert CliRunner().invoke(app, ["executor", "join", *container["args"]]).exit_code == 0
    assert (joined[0].host, joined[0].token_file) == ("my-job", "/run/fedscale/token/token")


def test_a_job_without_executors_is_refused():
    with pytest.raises(UserError, match="worker_ips asks for no executors"):
        render(make_config({"ps_ip": "10.0.0.1", "worker_ips": []}, {"job_name": "j"}), "image", "data")
    with pytest.raises(UserError, match="worker_ips names a without slots"):  # cores of this machine play no part
        render(make_config({"ps_ip": "10.0.0.1", "worker_ips": ["a"]}, {"job_name": "j"}), "image", "data")


def test_the_dockerfile_takes_what_is_there():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    taken = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert "fedscale_ext" in taken and all((ROOT / name).exists() for name in taken)
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(let_in) == sorted(taken)
    assert lines[[line.startswith("ARG BASE=") for line in lines].index(True) + 1] == "FROM ${BASE}"


def test_no_token_is_printed_and_the_first_lines_say_how_to_make_one():
    head = render(config(), "image", "data").splitlines()[:3]
    assert all(line.startswith("#") for line in head)
    assert "kubectl create secret generic my-job --from-file=token=/dev/stdin" in head[1]


@pytest.mark.parametrize(("name", "image", "claim"), [("1st", "i", "c"), ("x" * 43, "i", "c"), ("a", "a b", "c"),
                                                      ("a", "i", "-c")])  # fmt: skip
def test_names_that_kubernetes_does_not_take(name, image, claim):
    with pytest.raises(UserError):
        render(config(name), image, claim)


def test_the_command_prints_them(tmp_path, monkeypatch, capsys):
    from fedscale_ext.cli.main import main

    command = "fedscale driver render --k8s quickstart --image i --claim data --set job_name=other"
    monkeypatch.setattr("sys.argv", shlex.split(command))
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert {d["metadata"]["labels"]["fedscale-job"] for d in yaml.safe_load_all(capsys.readouterr().out)} == {"other"}


def test_an_entry_is_found_where_its_machine_has_it(tmp_path):
    import subprocess
    import sys

    (tmp_path / "run.py").write_text("import sys; print(sys.argv[1:])")
    argv = [sys.executable, "-m", "fedscale_ext.cluster.entry", str(tmp_path)]
    assert subprocess.run([*argv, "run.py", "--a=b c"], capture_output=True, text=True).stdout == "['--a=b c']\n"
    done = subprocess.run([*argv, "gone.py"], capture_output=True, text=True)
    assert done.returncode == 2 and "error: entry 'gone.py' is not below exp_path" in done.stderr


def test_a_wandb_key_is_not_written_into_a_manifest():
    with pytest.raises(UserError, match="wandb_token holds a key"):
        documents(wandb_token="secret-1234")
