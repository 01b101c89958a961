"""Accuracy of each client's model on everybody's test samples."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import load_config
from fedscale_ext.data.job_data import open_job_data
from fedscale_ext.data.store import DataSet
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.methods.pruning.pruned_types import unpack_channels
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.report.job.tables import summary_table
from fedscale_ext.tasks.evaluation_figures import figures_section
from fedscale_ext.tasks.kinds import check_answer, kinds_by_event
from fedscale_ext.tasks.test_on_all import EVENT
from fedscale_ext.transport.units import Unit
from fedscale_ext.transport.wire import WireError
from fedscale_ext.util.tensor_files import read_tensors

JOB: dict[str, Any] = {"model": "lenet_6k", "rounds": 1, "test_on_all": True, "learning_rate": 0.02}
LOGITS = {"fedmd.types": ["single_exit_mlp", "lenet_6k"], "fedmd.ranges": ["1-4", "5-7"], "public_samples": 6}


def run(job_file: Path, name: str, **keys: Any) -> dict[str, Any]:
    return fedscale_ext.run(job_file, job_name=name, **{**JOB, **keys})


def on_all(data: DataSet, module: torch.nn.Module) -> float:
    x, y = data.tensors(np.concatenate([data.test_rows(client) for client in range(1, data.num_clients + 1)]))
    return float((module.eval()(x).argmax(1) == y).double().mean())


def test_a_shared_models_accuracy_is_everybodys(job_file: Path) -> None:
    summary = run(job_file, "shared", num_participants=7)
    over_samples = summary["accuracy"]["named"]["global"]["accuracy"]
    assert summary["on_all"]["per_client"] == pytest.approx([over_samples] * 7)
    assert any(name == "on all" for name, _ in summary_table(summary))
    (record,) = read_records(Path(summary["log_dir"]) / "metrics.jsonl")
    assert record.on_all is not None and record.evaluation is not None
    assert record.on_all.count.tolist() == [record.evaluation.count.sum()] * 7
    assert run(job_file, "off", test_on_all=False)["on_all"] is None


def test_a_client_is_tested_with_the_model_that_it_keeps(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscale_ext.tasks.test_on_all._UNIT_SAMPLES", 1)  # a client in each unit
    monkeypatch.setattr("fedscale_ext.tasks.evaluation_figures._UNIT_SAMPLES", 3)  # all samples in several pieces
    summary = run(job_file, "kept", method="fedmd", num_participants=5, **LOGITS)
    log_dir = Path(summary["log_dir"])
    data = open_job_data(load_config(str(job_file), ["public_samples=6"]))
    (record,) = read_records(log_dir / "metrics.jsonl")
    for client, accuracy in enumerate(summary["on_all"]["per_client"], 1):
        key = "single_exit_mlp" if client <= 4 else "lenet_6k"
        spec, state = load_model(log_dir / "models" / f"{key}.safetensors")
        file = log_dir / "client_state" / key / f"{client}-000001.safetensors"
        assert file.is_file() == (client in record.participants)
        tensors = read_tensors(file)[0] if file.is_file() else {}
        module = models.build(spec)
        module.load_state_dict({**state, **tensors})
        assert accuracy == pytest.approx(on_all(data, module))
    rows = {row["type"]: row for row in summary["results"]["types"]}
    mine = summary["on_all"]["per_client"][4:]
    assert rows["lenet_6k"]["accuracy_on_all"] == pytest.approx(np.mean(mine))
    assert rows["all"]["accuracy_on_all"] == pytest.approx(summary["on_all"]["mean"])


def test_clients_own_networks_have_the_statistics_of_their_own_samples(job_file: Path) -> None:
    """Hermes: the mean of running statistics of differently pruned networks fits none of them."""
    keys = {"method": "hermes", "model": "nasbench201_base", "rounds": 2, "num_participants": 7,
            "hermes.threshold": 0.0, "hermes.groups": [2, 2, 3], "test_bsz": 500}  # fmt: skip
    log_dir = Path(run(job_file, "measured", **keys)["log_dir"])
    data, summed = open_job_data(load_config(str(job_file))), losses(log_dir)
    x, y = data.tensors(np.concatenate([data.test_rows(client) for client in range(1, 8)]))
    spec, state = load_model(log_dir / "models" / "global.safetensors")
    widths = set()
    for client in range(1, 8):
        module = models.build(spec)
        module.load_state_dict(state)
        tensors = read_tensors(log_dir / "client_state" / "global" / f"{client}-000002.safetensors")[0]
        channel_indices = unpack_channels(tensors, channels.whole(spec))
        widths.add(tuple(channels.widths(channel_indices).values()))
        parameters = dict(module.named_parameters())
        masks.apply(channels.masks(models.layout(spec), channel_indices, parameters), parameters)
        for part in module.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.momentum = 1.0  # what one batch of all its samples has
        rows = data.train_rows(client)
        if len(rows) > 1:  # one sample has no variance
            module.train()(data.tensors(rows)[0])
        logits = module.eval()(x)
        expected = torch.nn.functional.cross_entropy(logits, y, reduction="sum").item()
        assert summed[client - 1] == pytest.approx(expected, rel=1e-4)
    assert len(widths) > 1
    running = losses(Path(run(job_file, "running", **keys, bn_statistics="running")["log_dir"]))
    assert not np.isclose(running, summed, rtol=1e-3).any()


def losses(log_dir: Path) -> np.ndarray:
    """Of each client's model on all samples, summed, after the last round."""
    last = read_records(log_dir / "metrics.jsonl")[-1].on_all
    assert last is not None
    return last.loss


def test_an_ensembles_accuracy_is_of_its_mean(job_file: Path) -> None:
    keys = {"method": "splitmix", "splitmix.r": 0.5, "num_participants": 7}
    summary = run(job_file, "ensemble", **keys)
    served = summary["accuracy"]["served"]
    accuracies = dict(zip(served, summary["on_all"]["per_client"], strict=True))
    assert any("+" in key for key in served)
    assert [accuracies[key] for key in served] == summary["on_all"]["per_client"]


def test_counts_of_more_samples_than_there_are_are_refused() -> None:
    unit = Unit(1, EVENT, {"clients": [2]}, ("m",))
    sizes = np.array([4, 6])
    check_answer(kinds_by_event(), unit, {}, sections(10.0), sizes)
    with pytest.raises(WireError, match="figures that no count of samples can have"):
        check_answer(kinds_by_event(), unit, {}, sections(11.0), sizes)


def sections(correct: float) -> dict[str, Any]:
    return {"figures": figures_section(np.array([[correct, correct, 1.0]]))}
