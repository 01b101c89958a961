"""Whole jobs: in this process, and as the real command with one and four executors."""

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from job_results import assert_equal, result

import fedscale_ext
from fedscale_ext.config.job_config import JobConfig, load_config, with_values
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.metrics.job_folder.round_records import read_lines
from fedscale_ext.report.job.tables import seconds
from fedscale_ext.server.aggregator import MultiModelAggregator
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.util.token import new_token

FEDTRANS = {"method": "fedtrans", "rounds": 6, "fedtrans.gamma": 1, "fedtrans.delta": 1, "fedtrans.beta": 1e9}


def in_process(job_file: Path, **keys: Any) -> dict[str, Any]:
    name = keys.setdefault("job_name", "in_process")
    fedscale_ext.run(job_file, **keys)
    return result(job_file.parent / "logs" / name / "logs")


def command(job_file: Path, name: str, **keys: Any) -> dict[str, Any]:
    settings = [f"--set={key}={value}" for key, value in {"job_name": name, "time_stamp": "t", **keys}.items()]
    done = subprocess.run(
        [sys.executable, "-m", "fedscale_ext.cli", "driver", "start", str(job_file), *settings],
        env={**os.environ, "FEDSCALE_EXT_STATE": str(job_file.parent / "state")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return result(next((job_file.parent / "logs" / name).iterdir()))


def test_executors_processes_and_channel_play_no_part_in_the_result(job_file: Path) -> None:
    cohorts = {**FEDTRANS, "cohort_size": 3, "num_participants": 7}
    here = in_process(job_file, **cohorts)
    assert len(here["models"]) > 2
    token = new_token(job_file.parent / "token")  # of the second job; the first gets its own
    for slots, keys in ((1, {}), (4, {"token_file": token})):
        there = command(job_file, f"slots{slots}", **cohorts, **keys, worker_ips=f"localhost:[{slots}]")
        assert_equal(here, there)
        summary = next((job_file.parent / "logs" / f"slots{slots}").iterdir()) / "summary.json"
        assert json.loads(summary.read_text())["refused_messages"] == {}
    secret = token.read_bytes().strip()
    files = [path for path in job_file.parent.rglob("*") if path.is_file() and path != token]
    assert any(path.name == "output.log" for path in files)
    assert not any(secret in path.read_bytes() or path.name == "token" for path in files)


def test_a_resumed_job_equals_an_unbroken_one(job_file: Path) -> None:
    unbroken = in_process(job_file, **FEDTRANS, job_name="unbroken")
    in_process(job_file, **{**FEDTRANS, "rounds": 3}, job_name="broken")
    resumed = in_process(job_file, **FEDTRANS, job_name="broken", resume=True)
    # the shorter job tested its last model, the unbroken one had no evaluation due there
    for rounds in (unbroken["rounds"], resumed["rounds"]):
        del rounds[2]["evaluation"]
    assert_equal(unbroken, resumed)


def test_a_measured_cohort_size_is_chosen_once_and_replayed(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "fedscale_ext" / "cohorts"
    auto = {"cohort_size": "auto", "batch_size": 4, "num_participants": 7}
    first = in_process(job_file, **auto)
    (choice,) = folder.iterdir()
    size = json.loads(choice.read_text())["size"]
    assert size in (1, 4)
    assert_equal(first, in_process(job_file, **auto, job_name="again"))
    in_process(job_file, **auto, rounds=1, job_name="broken")
    choice.write_text(json.dumps({"size": 5 - size}))  # the other choice
    assert in_process(job_file, **auto, job_name="other")["models"] is not None
    resumed = in_process(job_file, **auto, job_name="broken", resume=True)
    for rounds in (first["rounds"], resumed["rounds"]):
        del rounds[0]["evaluation"]
    assert_equal(first, resumed)


def test_cohorts_reach_the_accuracy_of_clients_one_by_one(job_file: Path) -> None:
    ends = {}
    for size in (1, 4):
        run = in_process(
            job_file, cohort_size=size, rounds=8, local_steps=5, num_participants=7, job_name=f"cohort{size}"
        )
        ends[size] = run["rounds"][-1]["train_loss"]
        assert run["rounds"][-1]["train_loss"] < 0.7 * run["rounds"][0]["train_loss"]
    assert ends[1] == pytest.approx(ends[4], rel=0.05)
    assert ends[1] != ends[4]  # two ways of training: a bitwise equal one would be the same way


def test_clients_train_at_the_rate_of_their_round(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[tuple[int | str, float]] = []
    plain = MultiModelClient.train

    def noted(self: MultiModelClient, samples: Any, module: Any, conf: ClientConfig) -> Any:
        rates.append((conf.round, conf.learning_rate))
        return plain(self, samples, module, conf)

    monkeypatch.setattr(MultiModelClient, "train", noted)
    job = in_process(job_file, model="cnn_small", learning_rate=0.04, decay_factor=0.5, decay_round=2)
    assert set(rates) == {(1, 0.04), (2, 0.02)}
    assert [line["learning_rate"] for line in job["rounds"]] == [0.04, 0.02]


def test_only_clients_within_the_filters_train(job_file: Path) -> None:
    keys = {"model": "cnn_small", "num_participants": 2, "filter_less": 20, "filter_more": 24}
    summary = fedscale_ext.run(job_file, **keys)
    rounds = read_lines(Path(summary["log_dir"]) / "metrics.jsonl")
    assert [line["participants"] for line in rounds] == [[1, 2]] * 2  # of 24, 20, 16, 12, 28, 3 and 1 samples
    said = "5 of 7 clients have fewer than filter_less=20 or more than filter_more=24 training samples"
    assert any(notice.startswith(said) for notice in summary["notices"])


def test_a_rounds_seconds_include_the_writing_of_the_round_before(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = MultiModelAggregator.save_checkpoint

    def slow(self: MultiModelAggregator, round: int, last: bool = False) -> None:
        time.sleep(0.5)
        save(self, round, last)

    monkeypatch.setattr(MultiModelAggregator, "save_checkpoint", slow)
    summary = run_in_process(with_values(load_config(job_file), rounds=3))
    rounds = read_lines(Path(summary["log_dir"]) / "metrics.jsonl")
    assert all(line["wall_s"] >= 0.5 for line in rounds[1:])


def test_another_configuration_is_not_resumed(job_file: Path) -> None:
    in_process(job_file)
    with pytest.raises(UserError, match=r"in_process ran with other settings: learning_rate was \S+ and is 0.01;"):
        in_process(job_file, resume=True, learning_rate=0.01)


def test_a_job_of_a_release_that_had_fewer_keys_is_resumed(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = JobConfig.decisive
    with monkeypatch.context() as older:
        older.setattr(JobConfig, "decisive", lambda config: {k: v for k, v in whole(config).items() if k != "augment"})
        in_process(job_file, rounds=2)
    assert len(in_process(job_file, rounds=3, resume=True)["rounds"]) == 3
    keys = {"job_name": "in_process", "rounds": 4, "resume": True, "augment": "flip_crop"}
    config = with_values(load_config(job_file), **keys)
    (header,) = job_file.parent.glob("logs/*/*/header.json")
    before = header.read_bytes()
    with pytest.raises(UserError, match=r'another configuration: augment was "none" and is "flip_crop";'):
        run_in_process(config)
    assert header.read_bytes() == before  # later resumes are compared with it


def test_resuming_nothing_is_an_error(job_file: Path) -> None:
    with pytest.raises(UserError, match="nothing to resume"):
        in_process(job_file, resume=True, job_name="never_ran")


def test_another_seed_gives_another_result(job_file: Path) -> None:
    one, other = in_process(job_file), in_process(job_file, seed=2)
    assert one["rounds"] != other["rounds"]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"num_participants": 8}, "num_participants 8 is above the 7 clients that may train; lower it"),
        ({"num_participants": 4, "filter_more": 12}, "the 3 clients that may train; lower it, or raise filter_more"),
        ({"num_participants": 3, "filter_less": 20}, None),
        (
            {"num_participants": 4, "filter_less": 20},
            "above the 3 clients that may train; lower it, or lower filter_less",
        ),
        ({"data_dir": "/nowhere"}, "fedscale dataset"),
        ({"model": "nasbench201_bas"}, "did you mean 'nasbench201_base'"),
        ({"method": "fedtranz"}, "did you mean 'fedtrans'"),
        ({"method": "fedtrans", "fedtrans.betta": 1}, "fedtrans.betta; did you mean 'fedtrans.beta'"),
        ({"device_conf_file": "/nowhere"}, "device_conf_file /nowhere is missing"),
        ({"deadline_s": 1e-6}, "deadline_s"),
    ],
)
def test_bad_input_is_one_sentence(job_file: Path, keys: dict[str, Any], sentence: str | None) -> None:
    if sentence is None:
        in_process(job_file, **keys)
        return
    with pytest.raises(UserError) as raised:
        in_process(job_file, **keys)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_downloads_of_clients_that_are_lost_in_a_round_are_told_apart(job_file: Path, tmp_path: Path) -> None:
    trace = tmp_path / "behave"
    entry = {"finish_time": 1e6, "duration": 1, "model": "m", "active": [0.0]}
    days = {n: {**entry, "inactive": [1e-4 if n < 3 else 9e5]} for n in range(1, 8)}  # two are gone at once
    trace.write_bytes(pickle.dumps(days))
    keys = {"model": "cnn_small", "num_participants": 7, "overcommitment": 1.0, "rounds": 1}
    summary = fedscale_ext.run(job_file, device_avail_file=str(trace), **keys)
    model = summary["models"][0]["cost"]["bytes"]
    assert (summary["clients"]["offline"], summary["clients"]["late_download_mb"]) == (2, 0)
    assert summary["clients"]["lost_download_mb"] == pytest.approx(2 * model / 1e6)
    assert summary["cost"]["network_total_mb"] == pytest.approx(5 * 2 * model / 1e6)
    (line,) = (Path(summary["log_dir"]) / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["lost_download_bytes"] == 2 * model


def test_clients_that_are_offline_when_rounds_begin_are_counted(job_file: Path, tmp_path: Path) -> None:
    """Short rounds end before these clients are online: a method with long ones would train them."""
    trace = tmp_path / "behave"
    entry = {"finish_time": 1e6, "duration": 1, "model": "m", "inactive": [9e5]}
    never = {**entry, "active": [], "inactive": []}
    days = {n: {**entry, "active": [0.0 if n < 4 else 8e5]} for n in range(1, 7)} | {7: never}
    trace.write_bytes(pickle.dumps(days))
    keys = {"model": "cnn_small", "num_participants": 2, "overcommitment": 1.0, "device_avail_file": str(trace)}
    summary = fedscale_ext.run(job_file, **keys)
    (notice,) = (each for each in summary["notices"] if "offline" in each)
    assert notice.startswith("4 of 7 clients were offline at the beginning of every round and could not train: ")
    assert notice.endswith(f"cover {seconds(summary['time']['virtual_s'])} of virtual time")
    longer = fedscale_ext.run(job_file, resume=True, rounds=3, **keys)
    assert sum("offline" in each for each in longer["notices"]) == 1


def test_no_client_is_offline_where_rounds_reach_all(job_file: Path, tmp_path: Path) -> None:
    trace = tmp_path / "behave"
    entry = {"finish_time": 1e6, "duration": 1, "model": "m"}
    days = {n: {**entry, "active": [1.0], "inactive": [9e5]} for n in range(1, 7)}  # the first round waits for it
    days[7] = {**entry, "active": [], "inactive": []}  # which another notice tells
    trace.write_bytes(pickle.dumps(days))
    keys = {
        "model": "cnn_small",
        "num_participants": 2,
        "overcommitment": 1.0,
        "rounds": 1,
        "device_avail_file": str(trace),
    }
    assert not any("offline" in each for each in fedscale_ext.run(job_file, **keys)["notices"])


def test_downloads_of_clients_that_are_too_slow_are_told_apart(job_file: Path) -> None:
    keys = {"model": "cnn_small", "num_participants": 3, "overcommitment": 2.0, "rounds": 2, "eval_interval": 9}
    summary = fedscale_ext.run(job_file, **keys)
    model = summary["models"][0]["cost"]["bytes"]
    assert summary["clients"]["stragglers"] == 2 * 3
    assert summary["clients"]["late_download_mb"] == pytest.approx(6 * model / 1e6)
    assert summary["cost"]["network_total_mb"] == pytest.approx(2 * 2 * 3 * model / 1e6)
    lines = (Path(summary["log_dir"]) / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["late_download_bytes"] for line in lines] == [3 * model] * 2
