import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic_job import header, record, records
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.accuracy import accuracy
from fedscale_ext.metrics.cost import spent
from fedscale_ext.metrics.job_folder.recorder import Recorder
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.metrics.trackers.tensorboard import drop_events


def recorder(path: Path, internals: bool = True, capacity: np.ndarray | None = None) -> Recorder:
    return Recorder(path, header=header(), internals=internals, capacity=capacity)


def lines(path: Path) -> list[dict]:
    return [json.loads(text, parse_constant=pytest.fail) for text in path.read_text().splitlines()]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_line_is_on_disk_as_soon_as_the_round_is_done(tmp_path: Path):
    job = recorder(tmp_path)
    for number in (1, 2):
        job.round(record(number, evaluated=number == 2))
        assert [line["round"] for line in lines(tmp_path / "metrics.jsonl")] == list(range(1, number + 1))
    first, second = lines(tmp_path / "metrics.jsonl")
    assert first["evaluation"] is None
    assert second["evaluation"]["accuracy"]["untested"] == 2
    head = json.loads((tmp_path / "header.json").read_text())
    assert head["data"] == {"name": "femnist", "generated": True, "digest": "ab" * 32}


def test_records_come_back_exactly(tmp_path: Path):
    job = recorder(tmp_path)
    wrote = records(6, every=3)
    wrote[1] = replace(wrote[1], train_loss=float("nan"))
    for item in wrote:
        job.round(item)
    read = read_records(tmp_path / "metrics.jsonl")
    for before, after in zip(wrote, read, strict=True):
        for name, value in vars(before).items():
            if name == "evaluation" and value is not None:
                assert accuracy(after.evaluation) == accuracy(value)
                for field, array in vars(value).items():
                    np.testing.assert_array_equal(getattr(after.evaluation, field), array, err_msg=field)
            else:
                np.testing.assert_equal(getattr(after, name), value, err_msg=name)


def test_nan_is_never_written_bare(tmp_path: Path):
    job = recorder(tmp_path)
    job.round(replace(record(1), train_loss=float("nan"), client_durations_s=[]))
    job.internals(1, {"loss": np.array([np.nan, 1.0]), "ratio": float("inf")})
    assert lines(tmp_path / "metrics.jsonl")[0]["train_loss"] is None
    assert lines(tmp_path / "internals.jsonl") == [{"round": 1, "loss": [None, 1.0], "ratio": "inf"}]


def test_internals_only_where_enabled(tmp_path: Path):
    values = {"utility": {1: torch.tensor([0.5, -0.25])}, "pair": (1, 2)}
    recorder(tmp_path / "off", internals=False).internals(1, values)
    assert not (tmp_path / "off" / "internals.jsonl").exists()
    recorder(tmp_path / "on").internals(1, values)
    assert lines(tmp_path / "on" / "internals.jsonl") == [{"round": 1, "utility": {"1": [0.5, -0.25]}, "pair": [1, 2]}]


def test_a_value_that_cannot_be_written_leaves_no_half_line(tmp_path: Path):
    job = recorder(tmp_path)
    with pytest.raises(TypeError):
        job.internals(1, {"good": 1, "bad": object()})
    assert not (tmp_path / "internals.jsonl").exists()


def test_resume_gives_the_file_of_an_unbroken_job(tmp_path: Path):
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    job = recorder(unbroken)
    for item in records(8):
        job.round(item)
        job.internals(item.round, {"t": item.round / 3})
    job = recorder(broken)
    for item in records(8, every=6)[:6]:
        job.round(item)
        job.internals(item.round, {"t": item.round / 3})
        if item.round == 4:
            marks = job.reached()
    with (broken / "metrics.jsonl").open("a") as file:
        file.write('{"round":7,"virtual_cl')  # killed while writing
    job = recorder(broken)
    rounds = job.return_to(marks)
    assert [item.round for item in rounds] == [1, 2, 3, 4]
    assert job.spent == spent(rounds)
    for item in records(8)[4:]:
        job.round(item)
        job.internals(item.round, {"t": item.round / 3})
    assert (broken / "evaluations" / "round-000005.safetensors").is_file()
    assert contents(broken) == contents(unbroken)


def test_truncating_and_writing_again_gives_equal_bytes(tmp_path: Path):
    job = recorder(tmp_path)
    every = records(5, every=2)
    for item in every:
        job.round(item)
        if item.round == 2:
            marks = job.reached()
    before = (tmp_path / "metrics.jsonl").read_bytes()
    job.return_to(marks)
    assert len((tmp_path / "metrics.jsonl").read_bytes()) < len(before)
    for item in every[2:]:
        job.round(item)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_half_line_is_cut_before_appending(tmp_path: Path):
    job = recorder(tmp_path)
    job.round(record(1))
    marks = job.reached()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"round":2,')
    again = recorder(tmp_path)
    again.return_to(marks)
    again.round(record(2))
    assert [line["round"] for line in lines(tmp_path / "metrics.jsonl")] == [1, 2]


def test_two_jobs_never_mix_silently(tmp_path: Path):
    job = recorder(tmp_path)
    for number in (1, 2):
        job.round(record(number))
    with pytest.raises(ValueError, match="round 1 after round 2"):
        job.round(record(1))
    with pytest.raises(ValueError, match="has rounds: call return_to first"):
        recorder(tmp_path).round(record(3))
    assert recorder(tmp_path).return_to({}) == []
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_damaged_line_is_named(tmp_path: Path):
    job = recorder(tmp_path)
    for number in (1, 2):
        job.round(record(number))
    path = tmp_path / "metrics.jsonl"
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(UserError, match="line 1 of"):
        read_records(path)
    anew = recorder(tmp_path)
    assert anew.return_to({}) == []
    anew.round(record(1))
    assert [line["round"] for line in lines(path)] == [1]


@pytest.mark.parametrize("damage", ["flip", "shorten", "delete"])
def test_a_file_that_is_not_what_it_was_at_the_checkpoint_is_refused(tmp_path: Path, damage: str):
    job = recorder(tmp_path)
    for number in (1, 2):
        job.round(record(number))
        if number == 1:
            marks = job.reached()
    path = tmp_path / "metrics.jsonl"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[content.index(b"61.7")] ^= 1  # still JSON
        path.write_bytes(content)
    elif damage == "shorten":
        path.write_bytes(content[: marks["metrics.jsonl"]["bytes"] - 1])
    else:
        path.unlink()
    words = {"flip": "its sha256 differs", "shorten": "it is shorter", "delete": "No such file"}[damage]
    before = contents(tmp_path)
    with pytest.raises(UserError, match=words):
        recorder(tmp_path).return_to(marks)
    assert contents(tmp_path) == before


def test_a_lost_evaluation_is_missed_at_once(tmp_path: Path):
    job = recorder(tmp_path)
    job.round(record(1, evaluated=True))
    marks = job.reached()
    (tmp_path / "evaluations" / "round-000001.safetensors").unlink()
    with pytest.raises(UserError, match=r"round-000001.safetensors is missing"):
        recorder(tmp_path).return_to(marks)


def tags_of(path: Path) -> EventAccumulator:
    events = EventAccumulator(str(path), size_guidance={"scalars": 0, "histograms": 0})
    return events.Reload()


def test_tensorboard_has_fedscales_tags_and_ours(tmp_path: Path):
    job, writer = recorder(tmp_path, capacity=np.arange(62.0)), SummaryWriter(str(tmp_path))
    for item in records(6, every=3):
        job.round(item)
        job.show(item, writer)
    writer.close()
    events = tags_of(tmp_path)
    assert events.Tags()["histograms"] == ["Train/client_duration (min)"]
    assert set(events.Tags()["scalars"]) == {
        "Train/round_to_loss",
        "Train/time_to_train_loss (min)",
        "Train/round_duration (min)",
        "Test/round_to_loss",
        "Test/round_to_accuracy",
        "Test/time_to_test_loss (min)",
        "Test/time_to_test_accuracy (min)",
        "Test/client_accuracy_mean",
        "Test/client_accuracy_iqr",
        "Test/client_accuracy_worst",
        "Test/named/largest",
        "Train/models",
        *(f"Model/{key}/{figure}" for key in ("m0", "m1") for figure in ("accuracy", "clients")),
        *(f"Capacity/{group}/accuracy" for group in ("1_weakest", "2_second", "3_third", "4_strongest")),
        "Train/participants/m0",
        "Train/participants/m1",
        "Train/participants/m2",
        "Cost/forward_macs",
        "Cost/training_macs",
        "Cost/network_mb",
    }
    assert [event.step for event in events.Scalars("Test/round_to_accuracy")] == [1, 3, 6]
    assert [event.step for event in events.Scalars("Test/time_to_test_loss (min)")] == [1, 3, 6]
    timed = events.Scalars("Train/time_to_train_loss (min)")
    assert [event.wall_time for event in timed] == pytest.approx([61.7 * n for n in range(1, 7)])
    assert events.Scalars("Cost/network_mb")[-1].value == pytest.approx(18.0)
    assert events.Scalars("Train/round_duration (min)")[0].value == pytest.approx(61.7 / 60)
    durations = events.Histograms("Train/client_duration (min)")[0].histogram_value
    assert durations.max == pytest.approx(max(records(6)[0].client_durations_s) / 60)


def test_a_resumed_job_shows_each_round_once(tmp_path: Path):
    every = records(6, every=3)
    job, writer = recorder(tmp_path), SummaryWriter(str(tmp_path))
    for item in every[:5]:
        job.round(item)
        job.show(item, writer)
        if item.round == 4:
            marks = job.reached()
    writer.close()
    drop_events(tmp_path)
    job, writer = recorder(tmp_path), SummaryWriter(str(tmp_path))
    job.return_to(marks, writer)
    for item in every[4:]:
        job.round(item)
        job.show(item, writer)
    writer.close()
    events = tags_of(tmp_path)
    assert [event.step for event in events.Scalars("Train/models")] == [1, 2, 3, 4, 5, 6]
    assert [event.value for event in events.Scalars("Cost/network_mb")] == pytest.approx([3.0 * n for n in range(1, 7)])


def test_a_round_in_which_nobody_trained(tmp_path: Path):
    job, writer = recorder(tmp_path), SummaryWriter(str(tmp_path))
    item = replace(record(1), client_durations_s=[], participants=[], assignments={}, train_loss=float("nan"))
    job.round(item)
    job.show(item, writer)
    writer.close()
    events = tags_of(tmp_path)
    assert "Train/round_to_loss" not in events.Tags()["scalars"]
    assert events.Scalars("Train/models")[0].value == 1
