"""The defects of FedScale 1.0's runtime that a job could meet, each shown to be gone.

Tested elsewhere: prox sign and endless clients (test_training), Yogi on buffers
(methods/test_server_optimizer), stateful availability and the last client's device (population/).
"""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedscale_ext
from fedscale_ext.config.job_config import load_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.store import open_data_set
from fedscale_ext.executor.executor import MultiModelExecutor
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.tasks.kind import Kind
from fedscale_ext.tasks.train import Train
from fedscale_ext.training.local_training import MultiModelClient


def rounds_of(job_file: Path, name: str = "tiny") -> list[dict[str, Any]]:
    lines = (job_file.parent / "logs" / name / "logs" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def write_availability(path: Path, intervals: dict[int, tuple[list, list]]) -> Path:
    import pickle

    trace = {
        key: {"active": begins, "inactive": ends, "finish_time": 1000, "duration": 1, "model": "m"}
        for key, (begins, ends) in intervals.items()
    }
    path.write_bytes(pickle.dumps(trace))
    return path


def test_1_save_checkpoint_false_is_false(job_file: Path) -> None:
    assert load_config(job_file, ["save_checkpoint=False"]).fedscale.save_checkpoint is False
    fedscale_ext.run(job_file, save_checkpoint=False)


def test_2_nobody_online_at_the_start_waits_in_virtual_time(job_file: Path, tmp_path: Path) -> None:
    trace = write_availability(tmp_path / "behave", {key: ([500 + key], [900]) for key in range(1, 8)})
    fedscale_ext.run(job_file, device_avail_file=str(trace), num_participants=1)
    first = rounds_of(job_file)[0]
    assert first["round"] == 1
    assert first["participants"]
    assert first["virtual_clock_s"] > 501


def test_2_nobody_ever_online_is_one_sentence(job_file: Path, tmp_path: Path) -> None:
    trace = write_availability(tmp_path / "behave", {key: ([], []) for key in range(1, 8)})
    with pytest.raises(UserError, match="ever online"):
        fedscale_ext.run(job_file, device_avail_file=str(trace))


def test_4_rounds_are_trained_and_the_final_model_is_tested(job_file: Path) -> None:
    summary = fedscale_ext.run(job_file, rounds=3, eval_interval=100)
    rounds = rounds_of(job_file)
    assert [entry["round"] for entry in rounds] == [1, 2, 3]
    assert all(entry["participants"] for entry in rounds)
    assert rounds[-1]["evaluation"] is not None
    assert summary["accuracy"]["round"] == 3


def test_7_evaluation_is_not_random(job_file: Path, tiny_femnist: Path) -> None:
    data = open_data_set(tiny_femnist, "femnist")
    rows = data.test_rows(1)
    assert torch.equal(data.batch(rows), data.batch(rows))
    pixels = torch.from_numpy(np.asarray(data.x[rows])).float() / 255
    assert torch.allclose(data.batch(rows), (pixels - 0.1307) / 0.3081, atol=1e-6)


def test_8_fedavg_weighs_by_samples_and_leaves_failures_out(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients return constants: the mean must be theirs, weighed by their samples, without the failed one."""

    def train(self: Any, client_data: Any, model: torch.nn.Module, conf: Any) -> dict[str, Any]:
        if conf.client_id == 2:
            raise RuntimeError("this client's data is broken")
        state = {
            name: torch.full_like(v, conf.client_id) if v.is_floating_point() else v
            for name, v in model.state_dict().items()
        }
        return {
            "client_id": conf.client_id,
            "moving_loss": 1.0,
            "trained_size": 1,
            "utility": 1.0,
            "update_weight": state,
        }

    monkeypatch.setattr(MultiModelClient, "train", train)
    summary = fedscale_ext.run(job_file, rounds=1, num_participants=7)
    _, state = load_model(job_file.parent / "logs/tiny/logs/models/global.safetensors")
    sizes = open_data_set(load_config(job_file).fedscale.data_dir, "femnist").train_sizes
    clients = np.array([1, 3, 4, 5, 6, 7])
    expected = np.average(clients, weights=sizes[clients - 1])
    for tensor in state.values():
        if tensor.is_floating_point():
            assert torch.allclose(tensor, torch.full_like(tensor, expected))
    assert summary["clients"]["failed"] == {"RuntimeError: this client's data is broken": 1}


def test_9_integer_buffers_stay_integers(job_file: Path) -> None:
    fedscale_ext.run(job_file, rounds=1)
    _, state = load_model(job_file.parent / "logs/tiny/logs/models/global.safetensors")
    counts = [tensor for name, tensor in state.items() if name.endswith("num_batches_tracked")]
    assert counts and all(tensor.dtype == torch.int64 and int(tensor) == 2 for tensor in counts)


def test_11_each_model_pays_for_its_own_macs_and_bytes(job_file: Path) -> None:
    fedscale_ext.run(job_file, method="fedtrans", rounds=6, num_participants=6, job_name="grow",
                     **{"fedtrans.gamma": 1, "fedtrans.delta": 1, "fedtrans.beta": 1e9})  # fmt: skip
    folder = job_file.parent / "logs" / "grow" / "logs"
    sizes = {m["key"]: m["cost"]["bytes"] for m in json.loads((folder / "summary.json").read_text())["models"]}
    assert len(set(sizes.values())) == len(sizes) > 2
    for entry in rounds_of(job_file, "grow"):
        assert entry["upload_bytes"] == sum(sizes[key] * n for key, n in entry["assignments"].items())


def test_12_no_work_is_handed_out_before_the_models_exist(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[int] = []
    plain = Train.run

    def train(self: Any, worker: Any, header: dict[str, Any]) -> Any:
        handed.append(len(header["models"]))
        return plain(self, worker, header)

    monkeypatch.setattr(Train, "run", train)
    seen: list[int] = []
    monkeypatch.setattr(
        FedAvgAggregator,
        "initial_spec",
        lambda self: seen.append(len(handed)) or MULTI(self),  # type: ignore[func-returns-value]
    )
    fedscale_ext.run(job_file, rounds=1)
    assert seen and set(seen) == {0}
    assert handed and all(count == 1 for count in handed)


def MULTI(aggregator: FedAvgAggregator) -> Any:
    from fedscale_ext import models

    return models.named_spec(aggregator.args.model, aggregator.task.input_shape, aggregator.task.num_classes)


def test_13_an_update_that_nobody_asked_for_is_counted_and_dropped(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = Train.run

    def renamed(self: Any, worker: Any, header: dict[str, Any]) -> Any:
        answer, sections = plain(self, worker, header)
        if header["unit"] == 1:
            answer["results"][0]["client"] = 99
        return answer, sections

    monkeypatch.setattr(Train, "run", renamed)
    with caplog.at_level(logging.WARNING):
        summary = fedscale_ext.run(job_file, rounds=1, num_participants=7)  # units of 2, 2, 2 and 1
    failed = summary["clients"]["failed"]
    assert failed.pop("not asked for") == 1
    assert failed.pop("missing from its unit") == 1
    # the unit's sum holds the client that nobody asked for: its other client cannot count either
    assert [(reason[:14], clients) for reason, clients in failed.items()] == [("its sum weighs", 1)]
    assert summary["clients"]["participations"] == 5


def test_dropped_results_are_reported_at_the_end(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscale_ext.entry.in_process import run_in_process

    plain = MultiModelExecutor._hand_in

    def twice(self: Any, kind: Kind, unit: Any) -> Any:
        if kind.answer == "upload_model":
            plain(self, kind, replace(unit, header={**unit.header, "unit": 9}))
        return plain(self, kind, unit)

    monkeypatch.setattr(MultiModelExecutor, "_hand_in", twice)
    monkeypatch.setattr("fedscale_ext.server.grpc_server._PING_WAIT_S", 0.1)
    said: list[dict[str, Any]] = []
    run_in_process(load_config(job_file, ["rounds=1", "num_participants=1"]), said.append)
    assert any("1 unplanned result dropped" in event.get("message", "") for event in said)
