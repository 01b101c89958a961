"""Jobs of any method end where their accuracy has converged (`stop_gain`)."""

from pathlib import Path
from typing import Any

import pytest

import fedscale_ext
from fedscale_ext.config.idle_settings import idle_keys
from fedscale_ext.config.job_config import load_config, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver.jobs import Job
from fedscale_ext.driver.processes import Proc
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.server import aggregator
from fedscale_ext.server.announcements import round_event

KEYS = {"model": "cnn_small", "rounds": 6, "eval_interval": 1, "stop_gain": 1.0, "stop_patience": 2}


@pytest.mark.parametrize("method", ["fedavg", "heterofl", "fedtrans"])
def test_a_job_ends_where_its_accuracy_has_converged(job_file: Path, method: str) -> None:
    model = "nasbench201_base" if method == "fedtrans" else "cnn_small"
    summary = fedscale_ext.run(job_file, **{**KEYS, "model": model}, method=method, personalise_epochs=1)
    assert summary["rounds"] == summary["converged_round"] == 3  # no accuracy rises by more than 1
    assert summary["stopped"] == "accuracy rose by no more than 1 over 2 rounds"
    assert summary["personalised"] is not None  # the last round has what last rounds have


def test_a_converged_job_that_is_resumed_trains_no_further(job_file: Path) -> None:
    first = fedscale_ext.run(job_file, **KEYS)
    again = fedscale_ext.run(job_file, **KEYS, resume=True)
    assert again["rounds"] == first["rounds"] == 3 and again["stopped"] == first["stopped"]
    with pytest.raises(UserError, match="stop_patience was 2 and is 4; resume it with"):
        fedscale_ext.run(job_file, **{**KEYS, "stop_patience": 4}, resume=True)


@pytest.mark.parametrize("unit", ["evaluations", "rounds"])
def test_a_job_that_is_resumed_for_more_rounds_ends_where_an_undisturbed_one_does(job_file: Path, unit: str) -> None:
    types = {"local.types": ["cnn_small", "lenet_6k"], "local.ranges": ["1-3", "4-7"]}
    keys = {**KEYS, **types, "method": "local", "eval_interval": 3, "stop_unit": unit,
            "stop_patience": 2 if unit == "evaluations" else 5}  # fmt: skip
    whole = fedscale_ext.run(job_file, **{**keys, "rounds": 9}, job_name="whole")
    first = fedscale_ext.run(job_file, **{**keys, "rounds": 5}, job_name="resumed")
    assert first["rounds"] == 5 and first["stopped"] is None  # its last test is none that the settings ask for
    resumed = fedscale_ext.run(job_file, **{**keys, "rounds": 9}, job_name="resumed", resume=True)
    ends = ("rounds", "stopped", "converged_round", "results", "accuracy", "cost")
    assert {key: resumed[key] for key in ends} == {key: whole[key] for key in ends}
    assert whole["rounds"] == whole["converged_round"] == 6


def test_evaluations_may_be_counted_instead_of_rounds(job_file: Path) -> None:
    keys = {**KEYS, "eval_interval": 2, "rounds": 8, "stop_unit": "evaluations"}  # in rounds 1, 2, 4, 6, 8
    summary = fedscale_ext.run(job_file, **keys)
    assert summary["rounds"] == 4 and summary["stopped"] == "accuracy rose by no more than 1 over 2 evaluations"


def test_a_job_without_the_rule_says_nothing_of_it(job_file: Path) -> None:
    summary = fedscale_ext.run(job_file, model="cnn_small", rounds=1)
    assert summary["converged_round"] is None and summary["stopped"] is None


@pytest.mark.parametrize("key", ["stop_patience=5", "stop_unit=evaluations"])
def test_keys_of_the_rule_need_the_rule(job_file: Path, key: str) -> None:
    name, value = key.split("=")
    with pytest.raises(UserError, match=f"{name} needs stop_gain"):
        fedscale_ext.run(job_file, model="cnn_small", **{name: value})


def test_null_takes_the_rule_away_with_its_keys(job_file: Path) -> None:
    keys = {**KEYS, "stop_gain": None, "stop_unit": "evaluations", "rounds": 3}
    summary = fedscale_ext.run(job_file, **keys)
    assert summary["rounds"] == 3 and summary["stopped"] is None
    idle = idle_keys(with_values(load_config(job_file), **keys))
    assert idle == "stop_patience, stop_unit do nothing: stop_gain is null"


def test_null_takes_privacy_away_with_its_keys(job_file: Path) -> None:
    keys = {"model": "cnn_small", "dp_noise_multiplier": None, "dp_epsilon": 3.0, "rounds": 1}
    assert fedscale_ext.run(job_file, **keys)["privacy"] is None
    assert (
        idle_keys(with_values(load_config(job_file), **keys)) == "dp_epsilon does nothing: dp_noise_multiplier is null"
    )


def test_a_method_with_stages_refuses_the_rule(job_file: Path) -> None:
    with pytest.raises(UserError, match=r"stop_gain ends a job .* method fedoras has stages"):
        fedscale_ext.run(job_file, method="fedoras", model="cnn_tiny", stop_gain=0.01)


def test_a_job_ends_when_its_clients_have_computed_enough(job_file: Path) -> None:
    keys = {"model": "cnn_small", "rounds": 6, "eval_interval": 10}
    whole = fedscale_ext.run(job_file, **keys)
    per_round = whole["cost"]["training_macs"] / 6
    summary = fedscale_ext.run(job_file, **keys, stop_macs=2.5 * per_round, job_name="less")
    assert summary["rounds"] == 3 and summary["stopped"].startswith("clients' training took ")
    assert summary["accuracy"]["mean"] is not None  # the last round is tested
    again = fedscale_ext.run(job_file, **keys, stop_macs=2.5 * per_round, job_name="less", resume=True)
    assert again["rounds"] == 3 and again["stopped"] == summary["stopped"]


def test_clients_are_tested_at_equal_steps_of_work(job_file: Path) -> None:
    keys = {"model": "cnn_small", "rounds": 6, "eval_interval": 10}
    whole = fedscale_ext.run(job_file, **keys)
    per_round = whole["cost"]["training_macs"] / 6
    summary = fedscale_ext.run(job_file, **keys, eval_macs=2 * per_round, job_name="tested")
    tested = [record.round for record in read_records(Path(summary["log_dir"]) / "metrics.jsonl") if record.evaluation]
    assert tested == [1, 2, 4, 6]
    assert summary["accuracy"] == whole["accuracy"]


def test_a_method_with_stages_refuses_a_budget(job_file: Path) -> None:
    with pytest.raises(UserError, match=r"stop_macs ends a job by its cost, and method fedoras has stages"):
        fedscale_ext.run(job_file, method="fedoras", model="cnn_tiny", stop_macs=1e9)


def test_progress_counts_to_the_round_that_a_budget_ends(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[dict[str, Any]] = []

    def noted(*arguments: Any) -> dict[str, Any]:
        events.append(round_event(*arguments))
        return events[-1]

    monkeypatch.setattr(aggregator, "round_event", noted)
    keys = {"model": "cnn_small", "rounds": 1000, "eval_interval": 1000}
    summary = fedscale_ext.run(job_file, **keys, stop_macs=1e9)
    totals = [event["rounds"] for event in events]
    assert totals[-1] == summary["rounds"] < max(totals) + 1 < 1000
    job = Job("job", "conf.yml", "/logs", "t", [], Proc("driver", 5, 1.5), status="finished")
    job.note_event(events[-1])
    job.note_event({"event": "summary", "summary": summary})
    assert job.complete(1000) and not job.complete(2000)  # so that a resume leaves it as it is
