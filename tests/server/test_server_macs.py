"""``count_server_macs``: what the server computes itself, and nothing else that changes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from job_results import run_job
from tiny_job import tiny_data, write_job_file
from torch import Tensor

from fedscale_ext import models
from fedscale_ext.method import State
from fedscale_ext.methods.exchange import fedgh

ROUNDS, FEATURES, EPOCHS = 2, 6, 3
CLASSES, PUBLIC = 62, 8
JOB = {"method": "fedgh", "model": "lenet_6k", "fedgh.types": ["lenet_6k"], "fedgh.representation": FEATURES,
       "fedgh.epochs": EPOCHS, "rounds": ROUNDS, "local_steps": 1, "num_participants": 3}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job_file(tiny_data(tmp_path), tmp_path)


def test_the_servers_training_is_counted_and_changes_nothing(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[int] = []
    labelled = fedgh.labelled

    def noted(sent: Sequence[State]) -> tuple[Tensor, Tensor]:
        prototypes, classes = labelled(sent)
        learnt.append(len(classes))
        return prototypes, classes

    monkeypatch.setattr(fedgh, "labelled", noted)
    plain = run_job(job, "plain", at_once=True, **JOB)
    learnt.clear()
    counting = run_job(job, "counting", at_once=True, **JOB, count_server_macs=True)
    # forward pass, and the gradient of the weight: prototypes have none
    macs = [2 * EPOCHS * rows * FEATURES * CLASSES for rows in learnt]
    assert [line.pop("server_macs") for line in counting["rounds"]] == macs
    assert [line.pop("server_macs") for line in plain["rounds"]] == [None, None]
    assert counting["rounds"] == plain["rounds"]
    assert summary(job, "counting")["cost"]["server_macs"] == sum(macs) > 0
    assert summary(job, "plain")["cost"]["server_macs"] is None


def test_the_ensembles_logits_are_the_servers_work(job: Path) -> None:
    """Executors compute them for it."""
    settings = {"method": "feddf", "feddf.types": ["lenet_6k"], "feddf.groups": [7], "feddf.steps": 0,
                "public_samples": PUBLIC, "rounds": 2, "local_steps": 1, "num_participants": 3}  # fmt: skip
    lines = run_job(job, "feddf", at_once=True, **settings, count_server_macs=True)["rounds"]
    logits = PUBLIC * models.cost(models.named_spec("lenet_6k", (1, 28, 28), CLASSES)).forward_macs
    assert [line["server_macs"] for line in lines] == [len(line["participants"]) * logits for line in lines]


def summary(job: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((job.parent / "logs" / name / "logs" / "summary.json").read_text())
    return content
