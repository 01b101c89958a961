"""Clients of networks with several exits, in whole jobs whose clients hold different depths."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from client_settings import NO_BENCH
from torch.nn import functional

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config import methods
from fedscale_ext.config.job_config import load_config, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import EvaluationPlan, WorkItem
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.submodel.exit_levels import MultiExitClient
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.models.multi_exit import family as multi_exit
from fedscale_ext.training.local_training import MultiModelClient
from tests.client_settings import client_settings


class Depths(FedAvgAggregator):
    """Client c holds the first 1 + c mod 3 exits."""

    Client: ClassVar[type] = MultiExitClient
    trains_exits: ClassVar[bool] = True

    def init_state(self, population: Any, task: Any) -> None:
        spec = self.initial_spec()
        self.pool.add("3", spec, models.initial_state(spec, self.seed))
        for exits in (1, 2):
            self.pool.add_part(str(exits), "3", multi_exit.prefix(spec, exits), {})

    def assign(self, round: int, participants: Any) -> list[WorkItem]:
        return [WorkItem(client, str(1 + client % 3)) for client in participants.tolist()]

    def aggregate(self, round: int, updates: Any, means: Any) -> None:
        assert set(means) <= {"3"}
        self.pool.update("3", means["3"])

    def evaluation_plan(self) -> EvaluationPlan:
        return EvaluationPlan([str(1 + client % 3) for client in range(1, self.task.num_clients + 1)], {"global": "3"})


@pytest.fixture
def depths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "method_class", lambda _: Depths)


def run(job_file: Path, name: str, **keys: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    values = {"model": "multi_exit_cnn3", "num_participants": 7, "job_name": name, **keys}
    summary = run_in_process(with_values(load_config(job_file), **values))
    folder = job_file.parent / "logs" / name / "logs" / "models"
    return summary, {
        f"{key}/{tensor}": value
        for key in "123"
        for tensor, value in load_model(folder / f"{key}.safetensors")[1].items()
    }


def test_losses_sum_the_exits() -> None:
    client, generator = MultiExitClient(client_settings(), NO_BENCH), torch.Generator().manual_seed(0)
    output, labels = torch.randn(2, 5, 3, 4, generator=generator), torch.randint(0, 4, (2, 5), generator=generator)
    losses = client.losses(output, labels)
    assert losses.shape == (2, 5)
    by_hand = sum(functional.cross_entropy(output[1, 2, e : e + 1], labels[1, 2:3]) for e in range(3))
    torch.testing.assert_close(losses[1, 2], by_hand)
    last = output[..., 2, :]
    torch.testing.assert_close(client.losses(last, labels), client.losses(last[..., None, :], labels))


def test_other_clients_train_one_exit_and_refuse_several() -> None:
    client, labels = MultiModelClient(client_settings(), NO_BENCH), torch.tensor([1, 0])
    one = torch.randn(2, 1, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(client.losses(one, labels), client.losses(one[:, 0], labels))
    with pytest.raises(ValueError, match="2 exits and this method's clients train one"):
        client.losses(one.expand(2, 2, 3), labels)


@pytest.mark.usefixtures("depths")
def test_jobs_of_several_depths_are_the_same_in_cohorts_and_after_a_resume(job_file: Path) -> None:
    """Bit for bit after a resume; but for rounding in cohorts, with masks of dropout too."""
    spec = models.named_spec("multi_exit_cnn3", (1, 28, 28), 62).replace(dropout=0.3)
    path = job_file.parent / "model.json"
    path.write_text(json.dumps(spec.to_json()))
    keys = {"model": str(path), "bn_statistics": "federated"}
    summary, alone = run(job_file, "alone", rounds=2, **keys)
    assert {model["key"] for model in summary["models"]} == {"1", "2", "3"}
    macs = [model["cost"]["forward_macs"] for model in sorted(summary["models"], key=lambda each: each["key"])]
    assert macs == sorted(set(macs))
    run(job_file, "resumed", rounds=1, **keys)
    _, resumed = run(job_file, "resumed", rounds=2, resume=True, **keys)
    assert alone.keys() == resumed.keys()
    assert all(torch.equal(value, resumed[name]) for name, value in alone.items())
    _, together = run(job_file, "together", rounds=2, cohort_size=4, unit_size=4, **keys)
    for name, value in alone.items():
        torch.testing.assert_close(value, together[name], atol=1e-3, rtol=1e-3)
        if "running" not in name and not name.startswith("3/"):
            assert torch.equal(value, alone[f"3/{name[2:]}"])  # a prefix of the whole


def test_a_method_without_exits_trains_the_last_one_and_says_so(job_file: Path) -> None:
    keys = {"rounds": 1, "eval_interval": 1}
    with pytest.raises(UserError, match="name one with one exit, such as single_exit_cnn3"):
        fedscale_ext.run(job_file, model="multi_exit_cnn3", job_name="several", **keys)
    good = fedscale_ext.run(job_file, model="single_exit_cnn3", job_name="single", **keys)
    assert good["models"][0]["spec"]["fields"]["heads"] == "last"
    heterofl = fedscale_ext.run(job_file, method="heterofl", model="single_exit_cnn3", job_name="narrow", **keys)
    assert len(heterofl["models"]) > 1
