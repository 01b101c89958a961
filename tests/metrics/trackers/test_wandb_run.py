"""Weights & Biases, by a stand-in: what it is told, and that it is left alone without a token."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fedscale_ext
from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.trackers import wandb_run


class FakeWandb(ModuleType):
    def __init__(self) -> None:
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None)
        self.run: object | None = None
        self.opened: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.closed: list[int] = []

    def init(self, **keys: Any) -> None:
        self.opened.append(keys)

    def log(self, figures: dict[str, Any], step: int) -> None:
        self.logged.append((step, figures))

    def finish(self, exit_code: int) -> None:
        self.closed.append(exit_code)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_API_KEY", "")
    return fake


def test_a_job_with_a_token_is_logged_under_fedscales_names(wandb: FakeWandb, job_file: Path):
    fedscale_ext.run(job_file, wandb_token="secret-1234", progress=False)
    (opened,) = wandb.opened
    assert (opened["project"], opened["name"], opened["group"]) == ("fedscale-tiny", "aggregator0-logs", "logs")
    assert opened["config"]["method"] == "fedavg" and opened["config"]["num_participants"] == 4
    assert [step for step, _ in wandb.logged] == [1, 2]
    last = wandb.logged[-1][1]
    assert {"Train/round_to_loss", "Train/round_duration (min)", "Train/client_duration (min)",
            "Train/time_to_round (min)", "Test/round_to_accuracy", "Model/global/accuracy"} <= last.keys()  # fmt: skip
    assert wandb.closed == [0]
    written = [path for path in job_file.parent.rglob("*") if path.is_file() and b"secret-1234" in path.read_bytes()]
    assert written == []


def test_without_a_token_it_is_left_alone(wandb: FakeWandb, job_file: Path):
    fedscale_ext.run(job_file, rounds=1, progress=False)
    assert wandb.opened == wandb.logged == wandb.closed == []


def test_an_open_run_is_gone_on_with_and_left_open(wandb: FakeWandb, job_file: Path):
    wandb.run = object()
    fedscale_ext.run(job_file, rounds=1, wandb_token="login", progress=False)
    assert wandb.opened == wandb.closed == [] and len(wandb.logged) == 1


def test_a_run_that_does_not_open_is_one_sentence(wandb: FakeWandb, job_file: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(**_: Any) -> None:
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr(wandb, "init", fail)
    with pytest.raises(UserError, match="wandb opens no run: no network; check wandb_token"):
        fedscale_ext.run(job_file, wandb_token="x", progress=False)


def test_a_token_without_the_package_is_one_sentence(job_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wandb_run, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="wandb is not installed: pip install"):
        fedscale_ext.run(job_file, wandb_token="x", progress=False)
