"""Evaluations on disk: everything comes back, lines stay short, later rounds are forgotten."""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_job import evaluation, header, record

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import Evaluation
from fedscale_ext.metrics.accuracy import accuracy
from fedscale_ext.metrics.job_folder.evaluations import evaluation_from_json, write_evaluation
from fedscale_ext.metrics.job_folder.recorder import Recorder

EVERY = [field.name for field in fields(Evaluation)]


@pytest.mark.parametrize("samples", [10, 255, 256, 40_000, 3_000_000_000])
def test_everything_comes_back_exactly(tmp_path: Path, samples: int):
    rng = np.random.default_rng(samples)
    wrote = evaluation(7, rng.random(20).tolist(), samples=samples, untested=3)
    wrote = replace(wrote, loss=rng.standard_normal(23), named={"one": (0.5, float("nan"))})
    line, stored = write_evaluation(tmp_path, wrote)
    read = evaluation_from_json(tmp_path, json.loads(json.dumps(line, allow_nan=False)))
    for other in (stored, read, read.whole()):
        for name in EVERY:
            np.testing.assert_equal(getattr(other, name), getattr(wrote, name), err_msg=name)
    assert read.whole().correct.dtype == read.whole().loss.dtype == np.float64
    assert accuracy(read) == accuracy(stored) == accuracy(wrote) == accuracy(read.whole())


def test_a_loss_that_is_infinite_comes_back_as_a_number(tmp_path: Path):
    wrote = replace(evaluation(1, [0.5, 1.0]), loss=np.array([np.inf, 1.0]))
    line, _ = write_evaluation(tmp_path, wrote)
    assert accuracy(evaluation_from_json(tmp_path, json.loads(json.dumps(line, allow_nan=False)))).loss == np.inf


def test_figures_of_nobody_come_back(tmp_path: Path):
    line, _ = write_evaluation(tmp_path, evaluation(1, [], untested=2))
    read = accuracy(evaluation_from_json(tmp_path, json.loads(json.dumps(line, allow_nan=False))))
    np.testing.assert_equal(vars(read), vars(accuracy(evaluation(1, [], untested=2))))


def test_a_line_does_not_grow_with_the_clients(tmp_path: Path):
    lengths = []
    for clients in (10, 10_000):
        line, stored = write_evaluation(tmp_path, evaluation(1, [0.5] * clients))
        assert line["served"] == {"m0": clients // 2, "m1": clients // 2}
        lengths.append(len(json.dumps(line)))
    assert abs(lengths[1] - lengths[0]) < 30
    assert stored.path.stat().st_size < 13 * 10_000


def test_figures_are_known_without_the_file_and_columns_are_not(tmp_path: Path):
    line, stored = write_evaluation(tmp_path, evaluation(1, [0.5, 1.0]))
    assert line["clients"] == "evaluations/round-000001.safetensors"
    stored.path.unlink()
    assert accuracy(stored).mean == 0.75
    with pytest.raises(UserError, match="cannot be read"):
        _ = stored.correct
    with pytest.raises(AttributeError):
        _ = stored.nothing


def test_a_damaged_file_is_named(tmp_path: Path):
    _, stored = write_evaluation(tmp_path, evaluation(1, [0.5, 1.0]))
    stored.path.write_bytes(stored.path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"round-000001.safetensors is damaged"):
        stored.whole()


@pytest.mark.parametrize("path", ["../secret.safetensors", "/etc/passwd", "evaluations/x/round-000001.safetensors"])
def test_a_line_names_no_other_file(tmp_path: Path, path: str):
    line, _ = write_evaluation(tmp_path, evaluation(1, [0.5]))
    with pytest.raises(ValueError, match="clients"):
        evaluation_from_json(tmp_path, line | {"clients": path})


def test_forgotten_rounds_lose_their_files(tmp_path: Path):
    job = Recorder(tmp_path, header=header(), internals=False)
    for number in (1, 2, 3):
        job.round(record(number, evaluated=True))
        if number == 1:
            marks = job.reached()
    (tmp_path / "evaluations" / "mine.txt").touch()
    job.return_to(marks)
    assert sorted(path.name for path in (tmp_path / "evaluations").iterdir()) == [
        "mine.txt",
        "round-000001.safetensors",
    ]
    job.return_to({})
    assert [path.name for path in (tmp_path / "evaluations").iterdir()] == ["mine.txt"]
