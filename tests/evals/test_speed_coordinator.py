"""A stub round of the real coordinator: counts, not times."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from evals.speed.coordinator import STEP, configuration, stub_data, stubs
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.metrics.job_folder.round_records import read_records

CLIENTS, PARTICIPANTS, MODELS = 50_000, 1000, 4


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = configuration(tmp_path_factory.mktemp("job"), "fedtrans", PARTICIPANTS, rounds=1)
    with stubs(CLIENTS, MODELS):
        return Path(run_in_process(config)["log_dir"])


def test_every_participant_and_every_client_is_counted_once(log_dir: Path) -> None:
    (record,) = read_records(log_dir / "metrics.jsonl")
    data = stub_data(CLIENTS)
    assert record.selected == 1.3 * PARTICIPANTS
    assert len(set(record.participants)) == PARTICIPANTS == sum(record.assignments.values())
    assert record.selected - PARTICIPANTS == record.stragglers
    assert not record.failed and record.models == len(record.assignments) == MODELS
    assert (data.train_sizes[np.array(record.participants) - 1] >= 6).all()
    assert record.evaluation is not None
    assert record.evaluation.count.tolist() == data.test_sizes.tolist()
    assert record.evaluation.correct.tolist() == (data.test_sizes // 2).tolist()
    assert record.evaluation.loss.tolist() == (2.0 * data.test_sizes).tolist()
    assert set(record.evaluation.serve) <= set(record.assignments)


def test_the_mean_of_equal_changes_is_that_change(log_dir: Path) -> None:
    _, state = load_model(log_dir / "models" / "m0.safetensors")
    # BatchNorm's means start at zero, and m0 takes in no other model
    means = [value for name, value in state.items() if name.endswith("running_mean")]
    assert means
    for value in means:
        torch.testing.assert_close(value, torch.full_like(value, STEP))


def test_a_line_and_the_summary_are_json(log_dir: Path) -> None:
    line = json.loads((log_dir / "metrics.jsonl").read_text(encoding="utf-8"))
    assert line["evaluation"]["accuracy"]["tested"] == int((stub_data(CLIENTS).test_sizes > 0).sum())
    assert json.loads((log_dir / "summary.json").read_text(encoding="utf-8"))["num_clients"] == CLIENTS


def test_bytes_and_macs_are_those_of_each_participants_model(log_dir: Path) -> None:
    (record,) = read_records(log_dir / "metrics.jsonl")
    models = json.loads((log_dir / "summary.json").read_text(encoding="utf-8"))["models"]
    cost = {model["key"]: model["cost"] for model in models}
    sizes = stub_data(CLIENTS).train_sizes
    most = max(20 * min(10, int(sizes[client - 1])) for client in record.participants)
    assert record.upload_bytes == sum(cost[key]["bytes"] * clients for key, clients in record.assignments.items())
    assert record.download_bytes == record.upload_bytes  # nobody failed
    whole = sum(cost[key]["forward_macs"] * clients * most for key, clients in record.assignments.items())
    assert 0.95 * whole < record.forward_macs < whole  # some have less than a batch
    assert record.training_macs > 2 * record.forward_macs
