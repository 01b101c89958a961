"""Accuracy after fine-tuning, and of a global model client by client."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, client_settings

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.local_steps import local_steps
from fedscale_ext.data.store import open_data_set
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.report.job.tables import summary_table
from fedscale_ext.tasks.bn_statistics import sums, with_statistics
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.samples import ClientSamples

JOB = {"model": "cnn_small", "rounds": 2, "personalise_epochs": 2, "learning_rate": 0.02}


def run(job_file: Path, name: str, **keys: Any) -> dict[str, Any]:
    return fedscale_ext.run(job_file, job_name=name, **{**JOB, **keys})


@pytest.mark.parametrize("keys", [{}, {"model": "nasbench201_sixteenth", "bn_statistics": "federated"}])
def test_it_is_what_each_client_reaches_with_a_copy_tuned_on_its_own_data(
    job_file: Path, tiny_femnist: Path, keys: dict[str, Any]
) -> None:
    summary = run(job_file, "alone", **keys)
    log_dir = Path(summary["log_dir"])
    spec, state = load_model(log_dir / "models" / "global.safetensors")
    data = open_data_set(str(tiny_femnist), "femnist", data_map_file=None, test_split=0.2, seed=1, input_shape=None)
    expected = []
    for client, size in enumerate(data.train_sizes.tolist(), 1):
        rows = data.test_rows(client)
        if not len(rows):
            continue
        *_, steps, epochs = local_steps(size, 5, 0, 2, {})
        conf = client_settings(
            client,
            seed=1,
            round="personalise",
            local_steps=steps,
            local_epochs=epochs,
            batch_size=5,
            learning_rate=0.02,
        )
        module = models.build(spec)
        module.load_state_dict(state)
        training = data.tensors(data.train_rows(client))
        MultiModelClient(conf, NO_BENCH).train(ClientSamples(*training), module, conf)
        if keys:
            module.load_state_dict(with_statistics(module.state_dict(), sums(module, [training[0]])))
        x, y = data.tensors(rows)
        expected.append(float((module.eval()(x).argmax(1) == y).double().mean()))
    tuned = summary["personalised"]
    assert [value for value in tuned["per_client"] if value is not None] == pytest.approx(expected)
    assert tuned["mean"] == pytest.approx(np.mean(expected)) and tuned["tested"] == len(expected)
    assert tuned["worst"] == pytest.approx(min(expected)) and tuned["round"] == 2
    assert any(name == "personalised" for name, _ in summary_table(summary))
    first, last = read_records(log_dir / "metrics.jsonl")
    assert first.personalised is None and last.personalised is not None
    assert last.personalised.correct.sum() == pytest.approx(tuned["sample_weighted"] * last.personalised.count.sum())
    for name, tensor in load_model(log_dir / "models" / "global.safetensors")[1].items():
        assert torch.equal(tensor, state[name])


def test_cohorts_and_units_play_no_part_and_training_goes_on_as_without(job_file: Path) -> None:
    alone = run(job_file, "alone")
    together = run(job_file, "together", cohort_size=4, unit_size=7, rounds=2)
    assert together["personalised"]["tested"] == alone["personalised"]["tested"]
    off = run(job_file, "off", personalise_epochs=0)
    assert off["personalised"] is None
    assert off["accuracy"]["per_client"] == alone["accuracy"]["per_client"]
    plain = Path(off["log_dir"], "metrics.jsonl").read_text()
    assert "personalised" not in plain


def test_copies_are_tuned_at_the_last_rounds_rate(job_file: Path) -> None:
    """At a rate of about nothing, they answer as the model does that they are copies of."""
    summary = run(job_file, "slow", personalise_epochs=1, decay_factor=1e-9, decay_round=2, min_learning_rate=0)
    record = read_records(Path(summary["log_dir"], "metrics.jsonl"))[-1]
    assert record.personalised is not None and record.evaluation is not None
    tuned = record.personalised.count > 0
    assert record.personalised.correct[tuned].tolist() == record.evaluation.correct[tuned].tolist()
    assert record.personalised.loss[tuned] == pytest.approx(record.evaluation.loss[tuned], rel=1e-5)


def test_members_of_an_ensemble_are_tuned_each(job_file: Path) -> None:
    summary = run(job_file, "ensemble", method="splitmix", **{"splitmix.r": 0.5}, cohort_size=2)
    assert any("+" in key for key in summary["accuracy"]["served"])
    again = run(job_file, "again", method="splitmix", **{"splitmix.r": 0.5}, cohort_size=2, unit_size=7)
    assert summary["personalised"]["tested"] == again["personalised"]["tested"] == summary["accuracy"]["tested"]


def test_a_client_whose_loss_explodes_is_told(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = MultiModelClient.losses

    def losses(self: Any, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        values = plain(self, output, labels)
        return values * float("nan") if self.args.round == "personalise" and self.args.client_id == 2 else values

    monkeypatch.setattr(MultiModelClient, "losses", losses)
    summary = run(job_file, "job")
    assert summary["personalised"]["per_client"][1] is None
    assert summary["personalised"]["tested"] == summary["accuracy"]["tested"] - 1


def test_a_global_model_is_known_client_by_client(job_file: Path) -> None:
    keys = {"method": "heterofl", "num_participants": 7, "personalise_epochs": 0}
    summary = run(job_file, "job", **keys)
    log_dir = Path(summary["log_dir"])
    stored = read_records(log_dir / "metrics.jsonl")[-1].evaluation
    assert stored is not None
    correct = stored.named_correct["global"]
    named = summary["accuracy"]["named"]["global"]
    assert correct.sum() / stored.count.sum() == pytest.approx(named["accuracy"])
    tested = stored.count > 0
    assert named["mean"] == pytest.approx((correct[tested] / stored.count[tested]).mean())
    whole = np.array(stored.serve) == "a"  # who is served the whole model has its figures
    assert np.array_equal(correct[whole], stored.correct[whole])
    assert json.loads((log_dir / "summary.json").read_text())["accuracy"]["named"]["global"] == named


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(UserError, match="'personalise_epochs' is -1"):
        make_config({}, {"personalise_epochs": -1})
