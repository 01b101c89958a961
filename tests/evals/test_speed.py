import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rich.console import Console

from evals.speed import __main__ as command
from evals.speed import measure, monitor, peers, phases, results, table
from evals.speed.data import prepare
from evals.speed.rows import ours
from evals.speed.task import Task
from fedscale_ext.config.executor_slots import executor_slots
from fedscale_ext.config.job_config import load_config
from fedscale_ext.data.store import open_data_set


def line(row: str, repetition: int, median_s: float, **more: Any) -> dict[str, Any]:
    """A finished measurement."""
    base = {"model": "cnn_small", "row": row, "repetition": repetition, "rounds": 1, "status": "ok"}
    cost = {"median_s": median_s, "cpu_s_per_round": 2 * median_s, "peak_mb": 100.0, "peak_mb_sum": 250.0}
    ours_only = {"first_round_s": 5.0, "total_s": 9.0, "between_rounds_s": 0.0, "peaks_mb": [["executor 1", 90.0]]}
    return {**base, **cost, "busy_percent": 1.0, **(ours_only if row == "ours" else {}), **more}


def printed(show: Any, *args: Any) -> str:
    out = Console(width=200, record=True, file=io.StringIO())
    show(out, *args)
    return out.export_text()


def test_ratios_are_taken_within_a_repetition() -> None:
    lines = [line("ours", 0, 2.0), line("pfl", 0, 4.0), line("pfl", 1, 10.0), line("ours", 1, 3.0)]
    lines += [line("ours", 2, 1.0), line("pfl", 2, 0.0, status="failed"), line("limit", 0, 1.0)]
    assert table.ratios(lines, "cnn_small", "pfl") == [0.5, 0.3]
    assert table.ratios(lines, "cnn_leaf", "pfl") == []
    cells = table.cells(lines, "cnn_small", "pfl")
    assert cells[1:] == ("7", "4-10", "0.4", "0.3-0.5", "14", "100", "250")
    assert table.cells(lines, "cnn_small", "ours")[1:5] == ("2", "1-3", "-", "-")


def test_a_repeated_measurement_replaces_the_failed_one() -> None:
    lines = [line("ours", 0, 9.0, status="failed"), line("ours", 0, 2.0), line("limit", 0, 1.0)]
    assert table.ratios(lines, "cnn_small", "limit") == [2.0]
    assert results.finished(lines) == {("cnn_small", "ours", 0, 1), ("cnn_small", "limit", 0, 1)}


def test_each_repetition_measures_every_row_once_and_begins_with_another() -> None:
    plan = results.plan(["a", "b"], ["x", "y", "z"], 3, 1)
    assert len(set(plan)) == len(plan) == 18
    assert [row for model, row, _, _ in plan if model == "a"] == list("xyz" + "yzx" + "zxy")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """No data and no processes: what would have been measured is listed."""
    measured: list[tuple[str, str]] = []

    def fake(row: str, model: str, rounds: int, **_: Any) -> dict[str, Any]:
        measured.append((row, model))
        if len(measured) == 3:
            raise KeyboardInterrupt
        return {key: value for key, value in line(row, 0, 1.0).items() if key not in ("model", "row", "repetition")}

    monkeypatch.setattr(command, "prepare", lambda folder: folder)
    monkeypatch.setattr(command, "measure", fake)
    return measured


def test_resume_makes_only_what_is_missing(quick: list, tmp_path: Path) -> None:
    arguments = ["--models", "cnn_small", "--rows", "ours", "limit", "--repetitions", "2", "--rounds", "1"]
    arguments += ["--work", str(tmp_path)]
    assert command.main(arguments) == 130
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"torn')
    quick += [("", "")] * 3
    assert command.main([*arguments, "--resume"]) == 0
    assert quick[6:] == [("limit", "cnn_small"), ("ours", "cnn_small")]
    assert len([line for line in results.read(tmp_path / "results.jsonl") if "row" in line]) == 4
    assert command.main(arguments) == 0
    assert len(quick) == 12


def test_a_missing_peer_is_a_row_that_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "prepare", lambda folder: folder)
    arguments = ["--rows", "pfl", "fedscale", "--models", "cnn_small", "--repetitions", "1", "--idle", "0"]
    assert command.main([*arguments, "--work", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert shown.count("not installed: --install-peers") >= 4
    assert "| pfl-research, 2 processes | not installed: --install-peers |" in page


def test_a_peer_with_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pfl" / "bin").mkdir(parents=True)
    (tmp_path / "pfl" / "bin" / "python").touch()
    monkeypatch.setattr(peers, "versions_in", lambda python, packages: {"torch": "1.0", "pfl": "0.6.0"})
    assert "has torch 1.0 instead of" in str(peers.missing("pfl", tmp_path))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rows", "flowers"], "there is no row 'flowers'; did you mean 'flower'?"),
        (["--models", "cnn_smal"], "there is no model 'cnn_smal'"),
        (["--rounds", "0"], "--repetitions and --rounds must be at least 1"),
        (["--rows", "ours", "ours"], "a row is named twice"),
        (["--rounds", "few"], "invalid int value"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_the_data_are_the_same_in_both_forms_and_called_generated(tmp_path: Path) -> None:
    folder = prepare(tmp_path, clients=3, train=5, test=1)
    data = open_data_set(folder / "femnist", "femnist")
    x, y = np.load(folder / "x.npy"), np.load(folder / "y.npy")
    assert data.generated
    assert x.shape == (3, 5, 1, 28, 28)
    for client in range(3):
        rows = data.train_rows(client + 1)
        assert np.allclose(data.batch(rows).numpy(), x[client], atol=1e-6)
        assert data.labels(rows).tolist() == y[client].tolist()
    written = (folder / "x.npy").stat().st_mtime_ns
    prepare(tmp_path, clients=3, train=5, test=1)
    assert (folder / "x.npy").stat().st_mtime_ns == written


def test_our_job_is_the_work_that_is_asked_for(tmp_path: Path) -> None:
    conf = tmp_path / "conf.yml"
    conf.write_text(yaml.safe_dump(ours.configuration(Task("cnn_leaf", 3, tmp_path, tmp_path))), encoding="utf-8")
    config = load_config(conf)
    assert (config.job.client_momentum, config.job.client_weight_decay) == (0.0, 0.0)
    assert (config.fedscale.rounds, config.fedscale.num_participants, config.fedscale.overcommitment) == (5, 100, 1.0)
    assert config.fedscale.eval_interval > config.fedscale.rounds
    assert len(executor_slots(config)) == 2


def test_processor_seconds_are_interpolated_between_samples() -> None:
    watched = monitor.Watched(0, [(10.0, 1.0), (11.0, 3.0), (12.0, 3.0)])
    assert watched.cpu_between(10.5, 11.5) == pytest.approx(1.0)
    assert watched.cpu_between(0.0, 99.0) == pytest.approx(2.0)


def test_a_command_is_watched_with_its_children_and_ended_after_its_limit(tmp_path: Path) -> None:
    work = "end = time.process_time() + 0.6\nwhile time.process_time() < end: pass\n"
    watched = watch(tmp_path, work + "time.sleep(2)", limit_s=60)  # asleep, it is looked at once more
    assert watched.code == 0
    assert "executor 1" in [role for role, _ in watched.peaks()]
    assert 0.6 <= watched.cpu[-1][1] < 3
    watched = watch(tmp_path, "time.sleep(60)", limit_s=1.5)
    assert watched.code is None
    assert len(watched.processes) >= 1
    assert not any(seen.process.is_running() for seen in watched.processes)


def watch(folder: Path, work: str, limit_s: float) -> monitor.Watched:
    """A command whose child does ``work``."""
    child = f"import time\n{work}"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}, '--this_rank=1'])"
    return monitor.run([sys.executable, "-c", code], env={}, cwd=folder, log=folder / "log", limit_s=limit_s)


def test_figures_join_what_was_told_and_what_was_seen() -> None:
    report = {"rounds": [[10.0, 11.0], [11.0, 14.0]], "seconds": [1.0, 3.0], "checksum": 5.0}
    seen = [monitor.Seen(None, "aggregator", 4.0, 200.0), monitor.Seen(None, "executor 1", 2.0, 300.0)]  # type: ignore
    figures = measure.figures(report, monitor.Watched(0, [(9.0, 0.0), (10.0, 1.0), (14.0, 9.0), (15.0, 9.5)], seen))
    assert (figures["median_s"], figures["cpu_s_per_round"], figures["cpu_s_total"]) == (2.0, 4.0, 9.5)
    assert (figures["peak_mb"], figures["peak_mb_sum"], figures["checksum"]) == (300.0, 500.0, 5.0)


def test_phases_are_means_with_what_nobody_noted() -> None:
    noted = {"wall_s": 4.0, "seconds": {"train": 3.0, "record": 0.5}, "executor_seconds": {"training": 6.0}}
    records = [noted, {**noted, "seconds": {"train": 2.0, "record": 0.5}}]
    assert phases.rows(records, executors=2) == [
        ("aggregator: train", "2.500", "62.5 %"),
        ("aggregator: record", "0.500", "12.5 %"),
        ("aggregator: not noted", "1.000", "25.0 %"),
        ("executors: training", "6.000", "75.0 %"),
        ("executors: not noted", "2.000", "25.0 %"),
    ]


def test_absent_phases_are_said_plainly() -> None:
    shown = printed(phases.show, "cnn_small", [{"wall_s": 1.0}] * 3, 2)
    assert "metrics.jsonl has no 'seconds'" in shown
    assert "metrics.jsonl has no 'executor_seconds'" in shown


def test_the_page_does_not_name_folders_of_this_machine() -> None:
    words = ["--peers", "/a/b", "--work=/c", "--rows", "ours"]
    assert command.without_places(words) == "python -m evals.speed --peers DIR --work=DIR --rows ours"


def test_the_page_names_machine_versions_load_and_command() -> None:
    machine = {"cores": 2, "processor": "P", "system": "S", "memory_gib": 3.0, "load_average": [0.25, 0, 0]}
    lines = [line("ours", 0, 2.0), line("limit", 0, 1.0)]
    page = table.markdown(
        lines, ["cnn_small"], ["ours", "limit"], {**machine, "versions": {"torch": "2"}}, "python -m evals.speed"
    )
    for part in ("2 cores of P", "load average at the start [0.25", "torch 2", "`python -m evals.speed`"):
        assert part in page
    assert "| limit, 2 processes | 1 | - | 2 | - | 2 | 100 | 250 |" in page
