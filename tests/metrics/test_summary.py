import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_job import evaluation, header, models, records

import fedscale_ext
from fedscale_ext.metrics.summary import JobResult, floors, summarise, write_summary


@pytest.fixture(scope="module")
def summary() -> dict:
    return summarise(header(), models(), JobResult(records(20), lineage={"m1": {"parent": "m0", "op": "widen"}}))


def test_the_job_is_named(summary: dict):
    assert summary["data"]["name"] == "femnist" and summary["data"]["generated"] is True
    assert summary["population"] == "resampled from the published marginals"
    assert (summary["method"], summary["seed"], summary["params"]) == ("fedtrans", 1, {"beta": 0.003})
    assert summary["config"] == {"rounds": 100, "log_path": "logs"}
    versions = summary["versions"]
    assert versions.keys() == {"python", "torch", "numpy", "fedscale", "fedscale_ext", "commit", "platform"}
    assert versions["fedscale_ext"] == fedscale_ext.__version__ and versions["fedscale"] == "1.0"


def test_accuracy_is_of_the_last_evaluation(summary: dict):
    last = records(20)[-1].evaluation
    figures = summary["accuracy"]
    assert figures["round"] == 20
    assert figures["mean"] == pytest.approx(last.client_accuracy.mean())
    assert figures["worst"] == last.client_accuracy.min()
    assert figures["best"] == last.client_accuracy.max()
    assert figures["iqr"] == pytest.approx(np.subtract(*np.quantile(last.client_accuracy, (0.75, 0.25))))
    assert figures["per_client"] == [*last.client_accuracy.tolist(), None, None]
    assert figures["per_client"][figures["worst_client"] - 1] == figures["worst"]  # clients count from 1
    assert figures["named"] == {"largest": {"accuracy": 0.25, "loss": 1.75}}
    assert summary["loss"]["train"] == records(20)[-1].train_loss
    assert summary["loss"]["test"] == pytest.approx(last.loss.sum() / last.count.sum())


def test_cost_time_and_counts(summary: dict):
    cost = summary["cost"]
    assert (cost["forward_macs"], cost["training_macs"]) == (2e10, 6e10)
    assert (cost["download_bytes"], cost["upload_bytes"]) == (40_000_000, 20_000_000)
    assert (cost["network_total_mb"], cost["network_per_round_mb"]) == pytest.approx((60.0, 3.0))
    assert cost["storage_suite_mb"] == pytest.approx(154e-6)
    assert cost["mean_model_mb"] == pytest.approx(77e-6)  # half of the clients on each
    durations = np.concatenate([record.client_durations_s for record in records(20)])
    assert summary["time"] == pytest.approx(
        {
            "virtual_s": 61.7 * 20,
            "wall_s": 10.0,
            "round_completion_mean_s": durations.mean(),
            "round_completion_std_s": durations.std(),
        }
    )
    clients = summary["clients"]
    assert (clients["failed"], clients["failed_total"]) == ({"not finite": 2}, 2)
    assert (clients["offline"], clients["stragglers"], clients["untested"]) == (60, 120, 2)
    assert (clients["total"], clients["participations"]) == (62, 400)
    assert clients["took_part"] == len({c for record in records(20) for c in record.participants})


def test_models_with_spec_cost_and_lineage(summary: dict):
    first, second = summary["models"]
    assert first["spec"] == {"family": "toy", "fields": {"widths": [3, 4]}}
    assert first["cost"] == {"forward_macs": 12, "training_macs": 36, "parameters": 12, "bytes": 48}
    assert (first["key"], first["version"], first["serves"], first["lineage"]) == ("m0", 7, 31, None)
    assert second["lineage"] == {"parent": "m0", "op": "widen"}


def test_the_reason_of_an_early_end_is_in_it():
    summary = summarise(header(), models(), JobResult(records(2), stopped="accuracy stands still"))
    assert (summary["stopped"], summary["rounds"]) == ("accuracy stands still", 2)


def test_a_job_without_results_says_so():
    nothing = summarise(header(), models()[:1], JobResult([]))
    assert (nothing["rounds"], nothing["accuracy"]) == (0, None)
    assert nothing["loss"] == {"train": None, "test": None}
    assert nothing["time"]["round_completion_mean_s"] is None
    assert nothing["clients"]["untested"] == 62
    last = replace(records(1)[0], evaluation=evaluation(1, [], untested=3))
    untested = summarise(header(), models(), JobResult([last]))["accuracy"]
    assert (untested["mean"], untested["per_client"], untested["untested"]) == (None, [None] * 3, 3)


def test_the_file_is_strict_json_and_equal_to_the_dict(tmp_path: Path, summary: dict):
    path = write_summary(tmp_path, summary)
    assert path == tmp_path / "summary.json"
    assert json.loads(path.read_text(), parse_constant=pytest.fail) == summary
    assert list(tmp_path.iterdir()) == [path]


def test_notices_are_the_headers_unless_the_job_gave_more() -> None:
    begun = {**header(), "notices": ["at the start"]}
    assert summarise(begun, None, JobResult(records(2)))["notices"] == ["at the start"]
    result = JobResult(records(2), notices=["at the start", "later"])
    assert summarise(begun, models(), result)["notices"][1:] == ["later"]


def test_floors_leave_out_clients_without_test_samples() -> None:
    both = floors(np.array([3, 0, 1]), np.array([2, 0, 4]), np.array([4, 0, 4]))
    figures = {name: (floor["mean"], floor["tested"], floor["sample_weighted"]) for name, floor in both.items()}
    assert figures == {"majority": (0.5, 2, 0.5), "most_frequent": (0.75, 2, 0.75)}
    none = floors(np.array([0]), np.array([0]), np.array([0]))
    assert none["majority"]["mean"] is None and none["most_frequent"]["mean"] is None
