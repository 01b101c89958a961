"""Clients that keep their models, beside HtFLlib: the work is the same on both sides, and pages come from records."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from evals.speed.kept_models import __main__ as command
from evals.speed.kept_models import accuracy, htfllib, limit, ours, sides, times
from evals.speed.kept_models.data import noise, partition
from evals.speed.kept_models.work import CLIENTS, Split, Work, initial, specs
from fedscale_ext import models
from fedscale_ext.config.job_config import load_config


def work(folder: Path, **keys: Any) -> Work:
    return Work(
        **{"method": "fedproto", "pair": "small", "rounds": 3, "seed": 2, "data": folder, "out": folder, **keys}
    )


@pytest.fixture
def described(tmp_path: Path) -> Path:
    about = '{"data_set": "femnist", "layout": "femnist", "train": 200, "shape": [1, 28, 28], "classes": 62}'
    (tmp_path / "about.json").write_text(about, encoding="utf-8")
    return tmp_path


def line(side: str, repetition: int, seconds: float, **more: Any) -> dict[str, Any]:
    base = {"repetition": repetition, "pair": "small", "method": "local", "side": side, "rounds": 3, "status": "ok"}
    cost = {"median_s": seconds, "cpu_s_per_round": 2 * seconds, "peak_mb_sum": 300.0, "load_average": 0.5}
    return {**base, **cost, "busy_percent": 1.0, "htfllib": "abc", "torch": "2.13.0", "date": "2026-11-25", **more}


def test_networks_of_a_pair_have_the_sizes_and_features_that_the_page_says() -> None:
    larger, smaller = specs("cnn", (1, 28, 28), 10)
    assert [round(models.cost(spec).forward_macs / 1e6, 1) for spec in (larger, smaller)] == [4.3, 2.8]
    assert larger["hidden"] == smaller["hidden"]


@pytest.mark.parametrize("pair", ["cnn", "small"])
def test_htfllibs_network_is_ours_with_another_name_for_the_last_layer(pair: str) -> None:
    for spec in specs(pair, (1, 28, 28), 10):
        state, mine, theirs = initial(spec, 3), models.build(spec), Split(spec)
        mine.load_state_dict(state)
        theirs.load_state_dict({name.replace("linear2", "fc"): tensor for name, tensor in state.items()})
        x = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(mine(x), theirs(x))


def test_htfllib_deals_the_networks_as_our_ranges_do() -> None:
    order = htfllib.order()
    assert sorted(order) == list(range(CLIENTS))
    assert {client // (CLIENTS // 2) for client in order[::2]} == {0}  # its even clients have the first network
    assert {client // (CLIENTS // 2) for client in order[1::2]} == {1}


@pytest.mark.parametrize(("tested", "theirs"), [(False, (4, 5)), (True, (3, 1))])
def test_both_sides_are_asked_for_the_same(described: Path, tested: bool, theirs: tuple[int, int]) -> None:
    task = work(described, tested=tested)
    (described / "conf.yml").write_text(yaml.safe_dump(ours.configuration(task)), encoding="utf-8")
    config, arguments = load_config(described / "conf.yml"), htfllib.arguments(task)
    assert (config.fedscale.local_steps, config.fedscale.batch_size) == (20, arguments.batch_size)
    assert config.fedscale.learning_rate == arguments.local_learning_rate
    assert config.fedscale.rounds == (3 if tested else 5)  # without tests the first and the last do not count
    assert (arguments.global_rounds, arguments.eval_gap) == theirs
    assert config.method_params()["ranges"] == ["1-10", "11-20"]
    assert arguments.feature_dim == 64 and arguments.num_clients == config.fedscale.num_participants


def test_what_a_command_line_says_of_the_work_is_read_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    task = work(tmp_path, htfllib=tmp_path)
    monkeypatch.setattr("sys.argv", ["ours", task.argument()])
    assert Work.asked() == task


def test_a_partition_gives_no_sample_twice_and_each_client_as_many() -> None:
    train, test = (np.repeat(np.arange(10), count) for count in (500, 250))
    seen: dict[str, list[int]] = {"train": [], "test": []}
    first = list(partition(train, test, 1))
    for _, split, rows in first:
        assert len(rows) == {"train": 200, "test": 100}[split]
        seen[split] += rows
    assert all(len(set(rows)) == len(rows) for rows in seen.values())
    assert first == list(partition(train, test, 1)) != list(partition(train, test, 2))


def test_htfllib_gets_the_samples_of_our_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evals.speed.kept_models import data

    monkeypatch.setattr(data, "TRAIN", 3)
    folder = noise(tmp_path / "noise")
    (tmp_path / "out").mkdir()
    htfllib.write_data(work(folder, out=tmp_path / "out"))
    second = np.load(tmp_path / "out/dataset/work/train/1.npz", allow_pickle=True)["data"].tolist()  # we wrote it
    with np.load(folder / "clients.npz") as arrays:
        assert np.array_equal(second["x"], arrays["x_train"][10]) and np.array_equal(second["y"], arrays["y_train"][10])
    assert second["x"].shape == (3, 1, 28, 28)


def test_a_repetition_that_succeeded_is_not_made_again_and_sides_take_turns() -> None:
    options = command.parser(None, command.RECORD, ["local"], ["ours", "htfllib1"], sides.SIDES).parse_args([])
    options.pairs, options.repetitions = ["small"], 2
    lines = [line("ours", 1, 1.0), line("htfllib1", 1, 1.0, status="failed")]
    assert command.todo(options, lines) == [
        (1, "small", "local", "htfllib1"), (2, "small", "local", "htfllib1"), (2, "small", "local", "ours")
    ]  # fmt: skip


def test_only_methods_without_an_exchange_have_the_loop_alone() -> None:
    parser = command.parser(None, command.RECORD, ["local", "fedproto"], ["limit", "ours"], sides.SIDES)
    options = parser.parse_args([])
    options.pairs, options.repetitions = ["small"], 1
    planned = [(method, side) for _, _, method, side in command.todo(options, [])]
    assert planned == [("local", "limit"), ("local", "ours"), ("fedproto", "ours")]


def test_the_loop_alone_trains_each_clients_own_network_on_its_own_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evals.speed.kept_models import data

    monkeypatch.setattr(data, "TRAIN", 10)
    folder = noise(tmp_path / "noise")
    taken: list[tuple[int, int]] = []  # (parameters, label sum) of each call, of both processes
    monkeypatch.setattr(limit.loops, "in_processes", lambda share, rounds, processes: [
        train() for train in map(share, range(processes)) for _ in range(rounds)
    ])  # fmt: skip

    class Noting(limit.Limit):
        def train(self, x: torch.Tensor, y: torch.Tensor) -> None:
            before = [parameter.detach().clone() for parameter in self.parameters]
            super().train(x, y)
            assert all(not torch.equal(*pair) for pair in zip(before, self.parameters, strict=True))
            taken.append((sum(parameter.numel() for parameter in self.parameters), int(y.sum())))

    monkeypatch.setattr(limit, "Limit", Noting)
    limit.spans(work(folder, method="local", rounds=1))
    with np.load(folder / "clients.npz") as arrays:
        sums = arrays["y_train"].sum(1).tolist()
    sizes = [models.cost(spec).parameters for spec in specs("small", (1, 28, 28), 62)]
    once = [(sizes[client >= CLIENTS // 2], sums[client]) for client in range(CLIENTS)]
    assert sorted(taken) == sorted(2 * once)  # a round that counts, and one to warm up


def test_the_page_takes_ratios_within_a_repetition_and_tells_of_load() -> None:
    lines = [line("ours", 1, 1.0), line("htfllib1", 1, 4.0), line("htfllib1", 2, 10.0), line("ours", 2, 1.0)]
    lines += [line("ours", 3, 9.0), line("htfllib1", 3, 1.0, status="failed")]
    text = times.page(lines)
    assert "| local | HtFLlib, one thread | 7 | 4-10 | 0.175 (0.1-0.25) | 14 | 0.175 (0.1-0.25) | 300 |" in text
    assert "beside other work" not in text
    assert "1 of 2 measurements ran beside other work" in times.page(
        [*lines[:1], line("htfllib", 1, 1.0, busy_percent=90.0)]
    )


def test_accuracies_are_compared_by_seed() -> None:
    def run(side: str, seed: int, value: float) -> dict[str, Any]:
        return line(side, 0, 1.0, seed=seed, accuracy=[[0, 0.0], *([number, value] for number in range(1, 6))])

    lines = [run("ours", 1, 0.8), run("htfllib1", 1, 0.79), run("ours", 2, 0.7), run("htfllib1", 2, 0.74)]
    text = accuracy.page([*lines, run("ours", 3, 0.1)])
    assert "| local | HtFLlib | small | 3 | 1, 2 | 76.5 | 75.0 | +1.0, -4.0 | yes |" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "--htfllib must name a checkout of HtFLlib (github.com/TsingZ0/HtFLlib)\n"),
        (["--htfllib", "."], "(github.com/TsingZ0/HtFLlib), which . is not\n"),
        (["--rounds", "0"], "--rounds and --repetitions must be at least 1\n"),
        (["--methods", "fedprot"], "invalid choice: 'fedprot'"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1


def test_a_missing_environment_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "system" / "flcore").mkdir(parents=True)
    with pytest.raises(command.UserError, match=r"not installed: python -m evals.speed --install-peers"):
        sides.check(["htfllib"], tmp_path, tmp_path / "peers")


def test_the_pages_are_those_of_the_records() -> None:
    for module in (command, accuracy):
        page = times.page if module is command else accuracy.page
        recorded = module.RECORD.with_suffix(".md").read_text(encoding="utf-8")
        assert page(sides.read(module.RECORD)) == recorded
