"""A job in the caller's process: it computes what it would in one of its own, and leaves the caller's settings."""

import importlib
import io
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, reduce
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from fedscale_ext import compat
from fedscale_ext.config.job_config import JobConfig, load_config, with_values
from fedscale_ext.core.events import Emit, ignore_event
from fedscale_ext.entry import isolation
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.entry.isolation import isolated
from fedscale_ext.metrics.job_folder.round_records import read_lines
from fedscale_ext.server import grpc_server, records
from fedscale_ext.training.local_training import MultiModelClient

JOB = {"model": "cnn_small", "rounds": 1, "local_steps": 1, "num_participants": 2}


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "plot_job", lambda folder: folder / "plot.png")  # most of a tiny job's time


def job(job_file: Path, **keys: Any) -> JobConfig:
    return with_values(load_config(job_file), **{**JOB, **keys})


def digests(config: JobConfig, emit: Emit = ignore_event) -> Any:
    """Run a job; the digests of its rounds."""
    summary = run_in_process(config, emit)
    assert Path(summary["log_dir"]).parent.name == config.fedscale.job_name
    return [line["digests"] for line in read_lines(Path(summary["log_dir"], "metrics.jsonl"))]


def test_jobs_of_two_threads_take_turns(job_file: Path):
    first, second = (job(job_file, job_name=f"seed{seed}", seed=seed) for seed in (1, 2))
    alone = [digests(config) for config in (first, second)]
    events: list[dict[str, Any]] = []
    begun = threading.Event()
    results: list[Any] = []

    def note(event: dict[str, Any]) -> None:
        events.append(event)
        begun.set()

    other = threading.Thread(target=lambda: results.append(digests(second, note)))

    def begin_other(_: dict[str, Any]) -> None:
        if other.ident is None:
            other.start()
        assert begun.wait(60)

    results.append(digests(first, begin_other))
    other.join()
    assert events[0]["event"] == "notice" and "another job trains in this process" in events[0]["message"]
    assert results == alone


def test_a_clients_hook_may_run_a_job(job_file: Path, monkeypatch: pytest.MonkeyPatch):
    outer, inner = (job(job_file, job_name=name, seed=seed) for seed, name in enumerate(("outer", "inner")))
    alone = [digests(config) for config in (outer, inner)]
    assert isolation._threads == set()  # another thread may get the number of one that has ended
    train, results, threads = MultiModelClient.train, [], []

    def running_a_job(self: MultiModelClient, *args: Any) -> dict[str, Any]:
        if not results and args[-1].seed == 0:
            results.append(None)
            results[0] = digests(inner)
            threads.append((set(isolation._threads), {thread.ident, threading.get_ident()}))
        return train(self, *args)

    monkeypatch.setattr(MultiModelClient, "train", running_a_job)
    thread = threading.Thread(target=lambda: results.append(digests(outer)), daemon=True)
    thread.start()
    thread.join(120)
    waits = thread.is_alive()
    if waits:  # later tests of this process need the turn
        isolation._turn.release()
        thread.join(120)
    assert not waits, "the inner job waits for the outer one, and the outer one for it"
    assert results == alone[::-1]
    [(after_inner, of_outer)] = threads
    assert after_inner == of_outer and isolation._threads == set()


def test_each_job_has_its_log_and_the_callers_logging_stays(job_file: Path, monkeypatch: pytest.MonkeyPatch):
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    monkeypatch.setattr(logging.root, "handlers", [handler])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    talkative = logging.getLogger("talkative")
    with_handler = logging.getLogger("has a handler and no level")
    its_handler = logging.StreamHandler(output)
    monkeypatch.setattr(with_handler, "handlers", [its_handler])
    monkeypatch.setattr(with_handler, "propagate", False)
    monkeypatch.setattr(talkative, "level", logging.DEBUG)

    def log(_: dict[str, Any]) -> None:
        talkative.debug("said of a logger with a level")
        for name in ("quiet", "has a handler and no level"):
            logging.getLogger(name).info("said of a logger without one")

    logs = []
    for name in ("one", "two"):
        summary = run_in_process(job(job_file, job_name=name), log)
        logs.append(Path(summary["log_dir"], "aggregator", "log").read_text())
    assert ["job_name='one'" in text for text in logs] == [True, False]
    assert ["job_name='two'" in text for text in logs] == [False, True]
    assert set(output.getvalue().splitlines()) == {"said of a logger with a level"}
    assert (logging.root.handlers, logging.root.level) == ([handler], logging.WARNING)
    assert handler.filters == its_handler.filters == []


def test_without_handlers_of_the_caller_warnings_reach_standard_error(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    run_in_process(job(job_file), lambda event: logging.warning("look at this"))
    monkeypatch.setattr(logging.root, "level", logging.ERROR)
    run_in_process(job(job_file, job_name="quiet"), lambda event: logging.warning("not at this"))
    assert set(capsys.readouterr().err.splitlines()) == {"look at this"}
    assert logging.root.handlers == []


def test_the_callers_random_draws_go_on(job_file: Path):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    run_in_process(job(job_file))
    assert torch.rand(1) == expected


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def backends() -> list[Any]:
    """Those with a setting of precision, the general before the particular; none before torch 2.9."""
    every: Any = torch.backends
    cuda = [every.cudnn, every.cuda.matmul, every.cudnn.conv, every.cudnn.rnn]
    mkldnn = [every.mkldnn, every.mkldnn.matmul, every.mkldnn.conv, every.mkldnn.rnn]
    return [every, *cuda, *mkldnn] if hasattr(every, "fp32_precision") else []


def precision() -> list[Any]:
    """The settings of precision: torch's older ones raise if they contradict the newer."""
    values = [backend.fp32_precision for backend in backends()]
    cudnn, cublas = attrgetter("cudnn.allow_tf32"), attrgetter("cuda.matmul.allow_tf32")
    for read in (torch.get_float32_matmul_precision, partial(cudnn, torch.backends), partial(cublas, torch.backends)):
        try:
            values.append(read())
        except RuntimeError:
            values.append("mixed")
    return values


def set_precision(name: str, value: Any) -> None:
    if name == "products":
        torch.set_float32_matmul_precision(value)
    elif name == "mkldnn":  # its attribute writes the generic setting
        torch.backends.mkldnn.set_flags(_fp32_precision=value)
    else:
        *backend, attribute = name.split(".")
        setattr(reduce(getattr, backend, torch.backends), attribute, value)


def clear_precision() -> list[list[Any]]:
    """Set the newer settings to "none", the general first; returns what each had hidden."""
    states = []
    for backend in backends():
        backend.fp32_precision = "none"
        states.append(precision())
    return states


@contextmanager
def low_precision(**changes: Any) -> Iterator[None]:
    for name, value in changes.items():
        set_precision(name, value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
        clear_precision()
        if backends():
            set_precision("mkldnn", "none")
        set_precision("cudnn.allow_tf32", True)  # sets those of "conv" and "rnn", too


NEWER = pytest.mark.skipif(not backends(), reason="torch before 2.9 has no such setting")


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"products": "high"}, {"products": "medium"}, {"cudnn.allow_tf32": False}, {"cuda.matmul.allow_tf32": True},
        *(
            pytest.param(changes, marks=NEWER)
            for changes in (
                {"fp32_precision": "tf32"}, {"fp32_precision": "bf16", "mkldnn.matmul.fp32_precision": "bf16"},
                {"cudnn.fp32_precision": "ieee", "cudnn.rnn.fp32_precision": "none"},
                {"cudnn.conv.fp32_precision": "ieee"}, {"cuda.matmul.fp32_precision": "tf32"},
                {"mkldnn": "bf16"}, {"mkldnn": "bf16", "fp32_precision": "tf32"},
                {"products": "high", "mkldnn.matmul.fp32_precision": "bf16"},
                {"products": "high", "cuda.matmul.fp32_precision": "none", "mkldnn.matmul.fp32_precision": "none"},
                {"cudnn.allow_tf32": False, "cudnn.conv.fp32_precision": "tf32"},
            )
        ),
    ],
)  # fmt: skip
def test_float32_has_torchs_default_precision_in_a_job_and_the_callers_after_it(changes: dict[str, Any]):
    defaults, after = precision(), []
    for job in (nullcontext, partial(isolated, False, print)):
        with low_precision(**changes):
            with job():
                inside = precision()
            after.append([precision(), *clear_precision()])
    assert inside == defaults == precision()
    assert after[1] == after[0]


@contextmanager
def default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)


@contextmanager
def device_of_a_block() -> Iterator[None]:
    with torch.device("meta"):
        yield
        assert torch.get_default_device().type == "meta"
    assert torch.get_default_device().type == "cpu" and torch.zeros(1).device.type == "cpu"


def autocast() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


EXITS = {"method": "hypemefed", "model": "multi_exit_cnn3"}
TYPES = {"fedgen.types": ["single_exit_mlp", "cnn_small"], "fedgen.ranges": ["1-4", "5-7"]}
ON_SERVER = {"method": "fedgen", "fedgen.representation": 8, **TYPES}  # a method that trains on the server


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        (default_dtype, EXITS), (partial(low_precision, products="medium"), EXITS),
        *(
            pytest.param(partial(low_precision, **{name: "bf16"}), EXITS, marks=NEWER)
            for name in ("fp32_precision", "mkldnn.matmul.fp32_precision")
        ),
        (default_device, ON_SERVER), (device_of_a_block, ON_SERVER), (autocast, ON_SERVER),
        (torch.no_grad, ON_SERVER), (torch.inference_mode, ON_SERVER),
    ],
)  # fmt: skip
def test_the_callers_torch_settings_change_no_job(job_file: Path, settings: Any, keys: dict[str, Any]):
    config = job(job_file, **keys)
    expected, defaults, inside = digests(config), precision(), []
    with settings():
        before = torch.is_grad_enabled(), precision()
        assert digests(config, lambda _: inside.append(precision())) == expected
        assert (torch.is_grad_enabled(), precision()) == before
    assert inside and all(each == defaults for each in inside)


def test_fedscales_arguments_are_the_same_after_a_job(job_file: Path):
    compat.fedscale_parser()  # its first import reads the command line
    from fedscale.cloud import config_parser

    arguments: dict[str, Any] = vars(config_parser.args)
    inside: list[dict[str, Any]] = []
    before = dict(arguments)
    run_in_process(job(job_file), lambda _: inside.append(dict(arguments)))
    assert arguments == before and before not in inside


def test_a_jobs_token_leaves_the_environment(job_file: Path, monkeypatch: pytest.MonkeyPatch):
    def with_token(config: JobConfig) -> None:
        os.environ["WANDB_API_KEY"] = "a job's"

    monkeypatch.setattr(grpc_server, "open_run", with_token)
    for before in (None, "the caller's"):
        if before is not None:
            monkeypatch.setenv("WANDB_API_KEY", before)
        run_in_process(job(job_file))
        assert os.environ.get("WANDB_API_KEY") == before


def test_no_stand_in_for_wandb_stays(job_file: Path):
    run_in_process(job(job_file))
    assert not isinstance(getattr(sys.modules.get("wandb"), "init", None), compat._Missing)


def test_importing_the_package_leaves_the_environment():
    code = (
        "import os; before = dict(os.environ); import fedscale_ext.method, fedscale_ext.entry.in_process;"
        "print({key: value for key, value in os.environ.items() if before.get(key) != value})"
    )
    fresh = {key: value for key, value in os.environ.items() if not key.startswith("MASTER_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=fresh)
    assert (done.returncode, done.stdout) == (0, "{}\n"), done.stderr[-500:]


NET = """
from torch import nn
class Net(nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(784, {width}), nn.ReLU(), nn.Linear({width}, num_classes))
"""


def test_a_class_that_was_loaded_anew_has_its_new_cost(job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "edited_net", None)  # taken out again at the end
    monkeypatch.delitem(sys.modules, "edited_net")
    macs = []
    for width in (8, 24):
        (tmp_path / "edited_net.py").write_text(NET.format(width=width))
        importlib.invalidate_caches()
        if width == 24:
            importlib.reload(sys.modules["edited_net"])
        summary = run_in_process(
            job(job_file, model="edited_net:Net", method="heterofl", capacity_model="cnn_small", job_name=f"net{width}")
        )
        macs.append(max(model["cost"]["forward_macs"] for model in summary["models"]))
    assert macs[1] == 3 * macs[0]
