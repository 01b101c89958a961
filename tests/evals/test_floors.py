"""The floors: a ridge regression in closed form, a network trained centrally, and how both are tested."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evals.hypemefed.settings import PAPER
from evals.paper import floors, output
from evals.paper.experiment import Arm, Run
from evals.paper.floor_table import LINEAR, floor_lines, linear_floor
from evals.paper.papers import Paper
from evals.paper.ridge import Blocks, Moments, fitted, ridge, right_of
from evals.paper.runs import Records
from fedscale_ext.config.job_config import JobConfig, load_config
from fedscale_ext.data.store import ClientRows, open_data_set


def _blocks(x: np.ndarray, y: np.ndarray) -> Blocks:
    """In blocks of three."""

    def blocks(rows: np.ndarray):
        for begin in range(0, len(rows), 3):
            yield x[rows[begin : begin + 3]], y[rows[begin : begin + 3]]

    return blocks


def _task(count: int = 40, features: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, features)) + 3
    return x, (x[:, 0] + x[:, 1] > 6).astype(np.int64)


def test_ridge_is_the_minimum_of_the_penalised_squared_error() -> None:
    x, y = _task()
    sums = Moments.of(_blocks(x, y), np.arange(len(x)), 2)
    model = ridge(sums, 0.5)
    variance = x.var(0).mean()

    def loss(weights: np.ndarray, bias: np.ndarray) -> float:
        errors = np.eye(2)[y] - (x @ weights + bias)
        return float((errors**2).sum(1).mean() + 0.5 * variance * (weights**2).sum())

    least = loss(model.weights, model.bias)
    rng = np.random.default_rng(2)
    for _ in range(20):
        step = 1e-3 * rng.normal(size=model.weights.shape), 1e-3 * rng.normal(size=2)
        assert loss(model.weights + step[0], model.bias + step[1]) > least


def test_sums_are_of_the_rows_alone() -> None:
    x, y = _task()
    whole = Moments.of(_blocks(x, y), np.arange(40), 2)
    rest = whole - Moments.of(_blocks(x, y), np.arange(10), 2)
    expected = Moments.of(_blocks(x, y), np.arange(10, 40), 2)
    assert rest.count == expected.count == 30
    np.testing.assert_allclose(rest.xx, expected.xx)
    np.testing.assert_allclose(rest.xy, expected.xy)
    with pytest.raises(ValueError, match="no training samples"):
        Moments.of(_blocks(x, y), np.arange(0), 2)


def test_the_penalty_is_chosen_on_a_part_that_the_model_did_not_see() -> None:
    """Labels are noise but for one feature: the largest penalties see it, the least one sees the noise."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 200))
    y = (x[:, 0] > 0).astype(np.int64)
    x[:, 0] *= 5
    model, penalty = fitted(_blocks(x, y), np.arange(60), 2, np.random.default_rng(4))
    least = ridge(Moments.of(_blocks(x, y), np.arange(60), 2), 1e-9)
    fresh = rng.normal(size=(400, 200))
    labels = (fresh[:, 0] > 0).astype(np.int64)
    fresh[:, 0] *= 5
    share = [right_of(one, _blocks(fresh, labels), np.arange(400)).mean() for one in (model, least)]
    assert penalty > 0.01 and share[0] > share[1] + 0.05


def test_constant_features_do_no_harm() -> None:
    x, y = np.ones((6, 2)), np.array([1, 1, 1, 1, 0, 0])
    model = ridge(Moments.of(_blocks(x, y), np.arange(6), 2), 0.1)
    assert model.predict(x).tolist() == [1] * 6


def test_clients_weigh_alike_whatever_they_have() -> None:
    test = ClientRows(np.arange(5), np.array([0, 4, 4, 5]))  # the second has none
    right = np.array([True, False, False, False, True])
    assert floors.accuracies(right, test) == {"accuracy %": 62.5, "global %": 40.0}


@pytest.fixture
def config(session_job_file: Path) -> JobConfig:
    settings = ["method=fedavg", "rounds=6", "num_participants=5", "local_steps=3", "batch_size=8", "learning_rate=0.1"]
    return load_config(session_job_file, settings)


def test_a_central_model_takes_the_steps_of_all_participants(config: JobConfig) -> None:
    args = config.fedscale
    data = open_data_set(args.data_dir, args.data_set, seed=1)
    assert floors.total_steps(config, data) == 6 * 5 * 3
    epochs = replace(config, job=config.job.model_copy(update={"local_epochs": 2}))
    each = np.mean([2 * -(-size // 8) for size in data.train_sizes])
    assert floors.total_steps(epochs, data) == round(6 * 5 * each)


def test_a_central_model_learns_the_pooled_samples(config: JobConfig) -> None:
    name = "tiny"
    run = floors.run_of("central", config, name, 1e9, {})
    linear = floors.run_of("linear", config, name, 1e9, {})
    classes = open_data_set(config.fedscale.data_dir, config.fedscale.data_set).num_classes
    assert run.arm.label == f"central model, {config.fedscale.model}" and run.figures["steps"] == 90
    assert linear.arm.label == LINEAR
    for one in (run, linear):
        assert one.figures["global %"] > 2 * 100 / classes


def test_a_central_model_that_would_take_too_long_is_left_out(config: JobConfig) -> None:
    run = floors.run_of("central", config, "tiny", 0.0, {})
    assert not run.figures and run.failed.startswith("not run: 90 steps would take about")


def test_the_job_is_fedavgs_on_the_papers_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Paper, "prepared", lambda self, name, folder, sources: folder / name)
    config = floors.job_config(PAPER, "fashion-h0.5", "small", 2, tmp_path, tmp_path)
    assert config.job.method == "fedavg" and config.fedscale.model == "single_exit_vgg_small" and config.job.seed == 2
    assert config.job.client_optimizer == "adam" and config.job.local_epochs == 5 and config.fedscale.rounds == 40


def _runs(label: str, data: str, *values: float) -> list[Run]:
    return [Run(Arm(label, data=data), data, seed, None, {"accuracy %": value, "global %": value + 1})
            for seed, value in enumerate(values, start=1)]  # fmt: skip


LEFT_OUT = Run(Arm("central model, x"), "c", 1, None, failed="not run: why")


def test_later_floors_stand_in_the_place_of_earlier_ones(tmp_path: Path) -> None:
    floors.record(
        tmp_path, [*_runs(LINEAR, "a", 10.0), *_runs("central model, x", "a", 20.0), LEFT_OUT], "one", "small"
    )
    floors.record(tmp_path, [*_runs(LINEAR, "a", 11.0), *_runs(LINEAR, "b", 12.0)], "two", "small")
    records = Records.load(tmp_path)
    assert records.tables["floors_small"].commands == ["one", "two"] and len(records.runs) == 3
    rows = output.recorded_floors(records, "small")
    means = {(row["label"], row["data"]): row["figures"]["accuracy %"]["mean"] for row in rows if row["seeds"]}
    assert means == {("central model, x", "a"): 20.0, (LINEAR, "a"): 11.0, (LINEAR, "b"): 12.0}
    page = (tmp_path / "results.md").read_text()
    assert (
        "| central model, x | a | 1 | 20 | 21 |" in page and "| central model, x | c | not run: why | – | – |" in page
    )
    assert floors.recorded_data(records, "small") == ["a", "b"]


def test_floors_are_a_table_of_their_own() -> None:
    rows = output.aggregated([*_runs(LINEAR, "a", 10.0, 11.0), *_runs(LINEAR, "b", 12.0), LEFT_OUT])
    assert floor_lines(rows)[5:] == [
        f"| {LINEAR} | a | 1, 2 | 10.5 ± 0.7071 | 11.5 ± 0.7071 |",
        f"| {LINEAR} | b | 1 | 12 | 13 |",
        "| central model, x | c | not run: why | – | – |",
    ]
    assert floor_lines([]) == []
    assert linear_floor(rows, "b", "accuracy %") == 12.0 and linear_floor(rows, "b", "test accuracy %") == 13.0
    assert linear_floor(rows, "a", "TMACs") is None and linear_floor(rows, "c", "accuracy %") is None


def test_data_that_lack_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--paper", "moss", "--data", "har_local", "--folder", str(tmp_path), "--sources", str(tmp_path)]
    assert floors.main(argv) == 2
    assert "uci_har.npz" in capsys.readouterr().err
