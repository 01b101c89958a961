"""A process that joins a running job: what it runs with, and why it may not begin."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from aggregator_service import configuration as job_configuration
from aggregator_service import connection, registration, serving

from fedscale_ext.cli import executor_commands
from fedscale_ext.cli.main import main
from fedscale_ext.config.job_config import make_config, shared_argv, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.entry.join import JoinOptions, _device, check_token, configuration, join, make_executor
from fedscale_ext.entry.launch import prepare_process
from fedscale_ext.transport.joining import Offer


def offered(*arguments: str, job: str = "tiny") -> Offer:
    words = [f"--job_name={job}", "--method=fedavg", "--use_cuda=False", *arguments]
    return Offer(3, job, words, "0.1", "2", "2", "c", "d")


OPTIONS = JoinOptions("10.0.0.1", 4711, "/logs", token_file="/token")


def test_what_each_process_has_for_itself_is_not_the_aggregators_to_say() -> None:
    hostile = offered("--log_path=/etc", "--ps_ip=6.6.6.6", "--token_file=/root/secret", "--this_rank=0", "--rounds=9",
                      "--time_stamp=../..", "--tls_ca=/x", "--data_dir=there", "--wandb_token=key")  # fmt: skip
    config = configuration(hostile, OPTIONS, 5.0)
    args, job = config.fedscale, config.job
    assert (args.log_path, args.ps_ip, args.ps_port, args.this_rank) == ("/logs", "10.0.0.1", "4711", 3)
    assert (job.token_file, job.tls_ca, args.time_stamp, args.wandb_token) == ("/token", None, "executor-3", "")
    assert (args.rounds, args.data_dir) == (9, "there")  # but what the job is
    here = JoinOptions(
        "10.0.0.1", 4711, "/logs", data_dir="here", certificates={"tls_ca": "ca", "tls_executor_cert": "c"}
    )
    config = configuration(hostile, here, 5.0)
    assert (config.fedscale.data_dir, config.job.tls_ca, config.job.tls_executor_cert) == ("here", "ca", "c")
    assert config.job.token_file is None


def test_settings_that_this_version_does_not_know_are_bad_input() -> None:
    with pytest.raises(UserError, match=r"settings of job tiny cannot be used here: .*unknown job_conf key 'no_such'"):
        configuration(offered("--no_such=3"), OPTIONS, 5.0)
    with pytest.raises(UserError, match="settings of another one"):
        configuration(offered("--job_name=other"), OPTIONS, 5.0)


def test_a_gpu_is_for_jobs_that_use_one() -> None:
    options = JoinOptions("10.0.0.1", 4711, "/logs", gpu=2)
    assert configuration(offered("--use_cuda=True"), options, 5.0).fedscale.cuda_device == "cuda:2"
    with pytest.raises(UserError, match="trains on CPUs, since its use_cuda is False: leave --gpu out"):
        configuration(offered(), options, 5.0)


def test_a_process_without_a_gpu_that_the_job_needs_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(offered("--use_cuda=True"), JoinOptions("10.0.0.1", 4711, "/logs", gpu=2), 5.0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match=r"tiny trains on GPUs .* this machine has none that torch finds: join from"):
        _device(config)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match=r"job tiny trains on GPUs .* this machine has only 2: correct --gpu"):
        _device(config)


def test_a_job_elsewhere_needs_a_token_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"a job at 10.0.0.1 is joined with its token: give --token-file.* and --tls-ca"
    ):
        check_token(JoinOptions("10.0.0.1", 1, "/logs"))
    check_token(JoinOptions("10.0.0.1", 1, "/logs", certificates={"tls_ca": "ca"}))
    check_token(JoinOptions("127.0.0.1", 1, "/logs"))
    with pytest.raises(UserError, match=r"none does not exist: .* is gone when its job is over"):
        check_token(JoinOptions("10.0.0.1", 1, "/logs", token_file=str(tmp_path / "none")))


def test_settings_arrive_as_the_job_has_them(job_file: Path) -> None:
    config = job_configuration(job_file, "fedtrans.alpha=[1.5]", "wandb_token=key", "adam_beta1=0.5")
    arrived = configuration(Offer(3, "tiny", shared_argv(config), "", "", "", "", None), OPTIONS, 5.0)
    assert arrived.decisive() == with_values(config, wandb_token="").decisive()


@pytest.mark.parametrize(
    ("text", "address"),
    [("host.example:1", ("host.example", 1)), ("10.0.0.1:65535", ("10.0.0.1", 65535)), ("[::1]:80", ("::1", 80))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert executor_commands.parse_address(text) == address


@pytest.mark.parametrize("text", ["host", "host:", ":80", "host:0", "host:65536", "::1:80", "http://host:80", "a b:80"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(UserError, match="is no address: write HOST:PORT"):
        executor_commands.parse_address(text)


@pytest.fixture
def service(job_file: Path) -> Iterator[Any]:
    """A job of two executors that has begun, on data that nobody has."""
    config = job_configuration(job_file)
    with serving(config) as running:
        for executor in ("1", "2"):
            with connection(config, int(executor)) as stub:
                stub.CLIENT_REGISTER(registration(executor), wait_for_ready=True, timeout=10.0)
        running.wait_for_executors()
        yield running


def command(service: Any, *more: str) -> list[str]:
    config = service.config
    where = f"{config.fedscale.ps_ip}:{config.fedscale.ps_port}"
    return ["fedscale", "executor", "join", where, "--token-file", str(config.job.token_file), "--wait", "5", *more]


def refused(words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    """The one line that the command prints when it ends with exit code 2."""
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    (line,) = capfd.readouterr().err.splitlines()
    return line


def test_each_reason_not_to_begin_is_one_sentence_and_exit_code_2(
    service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = refused(command(service), monkeypatch, capfd)
    assert said.startswith(f"fedscale: {service.config.fedscale.data_dir} holds other samples or clients than the data")
    said = refused(command(service, "--data-dir", str(tmp_path / "none")), monkeypatch, capfd)
    assert f"{tmp_path / 'none'} holds no data set on this machine: copy the data of job tiny there" in said
    said = refused(command(service, "--gpu", "0"), monkeypatch, capfd)
    assert said.endswith("leave --gpu out")
    said = refused(command(service, "--token-file", str(tmp_path / "none")), monkeypatch, capfd)
    assert "does not exist: correct the path" in said
    service.executor_code = "another"
    assert "other code of fedscale_ext" in refused(command(service), monkeypatch, capfd)
    service.board.close()
    assert refused(command(service), monkeypatch, capfd).endswith("is over")


def test_a_refused_process_leaves_the_job_as_it_was(service: Any) -> None:
    config = service.config
    options = JoinOptions(config.fedscale.ps_ip, int(config.fedscale.ps_port), "/nowhere", config.job.token_file)
    said: list[str] = []
    with pytest.raises(UserError, match="other samples"):
        join(options, 5.0, said.append)
    assert len(said) == 1 and "executor 3" in said[0]
    assert service.infos.keys() == {"1", "2"} and not service.refusals.counts()


def test_a_process_that_joins_writes_its_log_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    logging.info("FedScale says so when it closes the connection that asked")  # and logging sets itself up
    flat = {"job_name": "tiny", "log_path": str(tmp_path), "time_stamp": "executor-3", "use_cuda": False}
    config = make_config({"worker_ips": []}, flat)
    prepare_process(config)
    _, log = make_executor(config)
    logging.info("a word")
    assert log == str(tmp_path / "logs/tiny/executor-3/executor/log")
    assert "a word" in Path(log).read_text()
    for handler in logging.root.handlers:
        handler.close()
