"""``count_server_macs``: what the server computes itself, and nothing else that changes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from job_results import run_job
from methods.small_space import spec_of, written
from tiny_job import tiny_data, write_job_file
from torch import Tensor

from fedscale_ext import models
from fedscale_ext.method import State
from fedscale_ext.methods.exchange import fedgh
from fedscale_ext.models.supernet.costs import dearest_path
from fedscale_ext.models.supernet.family import path_of

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


def test_what_a_new_model_would_cost_is_no_work(job: Path) -> None:
    grown = {"method": "fedtrans", "fedtrans.gamma": 1, "fedtrans.delta": 1, "fedtrans.beta": 1e9, "rounds": 4,
             "local_steps": 1, "num_participants": 3}  # fmt: skip
    lines = run_job(job, "grown", at_once=True, **grown, count_server_macs=True)["rounds"]
    assert lines[-1]["models"] > 1 and [line["server_macs"] for line in lines] == [0] * 4


def judging(folder: Path) -> dict[str, Any]:
    """Settings of a job in which the server judges paths once."""
    return {"method": "fedoras", "model": str(written(folder)), "num_participants": 6, "local_steps": 4, "rounds": 3,
            "filter_less": 3, "fedoras.brackets": [0.08], "fedoras.allocation": "shares",
            "fedoras.dynamic_budget": 0.3, "fedoras.supernet_rounds": 1, "fedoras.evaluations": 4,
            "fedoras.population": 4, "fedoras.parents": 2, "fedoras.finetune_rounds": 2,
            "count_server_macs": True}  # fmt: skip


def test_paths_that_the_server_has_judged_are_its_work(job: Path, tmp_path: Path) -> None:
    judged = judging(tmp_path)
    lines = {}
    for recalibrate in (False, True):
        keys = {**judged, "fedoras.recalibrate": recalibrate}
        lines[recalibrate] = run_job(job, f"judged_{recalibrate}", at_once=True, **keys)["rounds"]
    spent = {name: [line["server_macs"] for line in each] for name, each in lines.items()}
    assert [macs > 0 for macs in spent[False]] == [False, True, False]  # before the round of fine-tuning
    held_out, evaluations = 26, 4  # the first generation, which is drawn
    spec = spec_of((1, 28, 28), CLASSES, tmp_path)
    dearest = models.cost(path_of(spec, dearest_path(spec))).forward_macs
    assert 0 < spent[False][1] <= held_out * evaluations * dearest
    assert spent[True][1] == 2 * spent[False][1]  # a pass that measures statistics before each judgement


def test_a_comparison_with_clients_judgement_is_the_servers_work(job: Path, tmp_path: Path) -> None:
    judged = judging(tmp_path)
    federated = {**judged, "fedoras.evaluation": "federated"}
    jobs = {"central": judged, "alone": federated, "compared": {**federated, "fedoras.compare_rankings": True}}
    spent = {name: run_job(job, name, at_once=True, **keys)["rounds"][1]["server_macs"] for name, keys in jobs.items()}
    assert spent["alone"] == 0 < spent["compared"] == spent["central"]


def summary(job: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((job.parent / "logs" / name / "logs" / "summary.json").read_text())
    return content
