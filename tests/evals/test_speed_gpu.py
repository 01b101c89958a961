"""The command that measures a GPU, on a CPU: its budget, its checks, and its page."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from evals.speed import headline
from evals.speed.gpu import __main__ as command
from evals.speed.gpu import convolutions, correctness, fedtrans, rounds, sharing, sweep
from evals.speed.gpu.measurements import Measurements, Setting, read
from evals.speed.gpu.page import against_loop, correct, of, page
from fedscale_ext.data.layout.files import DESCRIPTION

CPU = Setting(torch.device("cpu"), small=True)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def spending(clock: Clock, seconds: float) -> Any:
    def work() -> dict[str, float]:
        clock.now += seconds
        return {"best_s": seconds}

    return work


def test_what_no_longer_fits_into_the_budget_is_left_out_with_the_reason(tmp_path: Path) -> None:
    clock = Clock()
    measurements = Measurements(tmp_path / "gpu.jsonl", CPU, 100.0, clock)
    assert measurements.left("correctness") == 15.0 and measurements.left("fedtrans") == 92.0
    assert measurements.measure("correctness", 10.0, spending(clock, 12.0), check="a") == {"best_s": 12.0}
    assert measurements.measure("correctness", 5.0, spending(clock, 1.0), check="b") is None
    assert (
        measurements.measure("rounds", 5.0, spending(clock, 1.0), row="loop") is not None
    )  # its share reaches further
    lines = read(tmp_path / "gpu.jsonl")
    assert [line.get("left_out") for line in lines] == [
        None, "3 s were left and it was expected to take 5 s", None
    ]  # fmt: skip
    assert lines[0] == {"part": "correctness", "check": "a", "best_s": 12.0, "took_s": 12.0}


def test_a_measurement_that_outlasts_its_part_is_interrupted(tmp_path: Path) -> None:
    measurements = Measurements(tmp_path / "gpu.jsonl", CPU, 1.0)
    began = time.monotonic()
    assert measurements.measure("correctness", 0.0, lambda: time.sleep(60) or {}, check="a") is None
    assert time.monotonic() - began < 30
    assert "it was not done after the" in read(tmp_path / "gpu.jsonl")[0]["left_out"]


def test_what_was_measured_survives_an_interruption(tmp_path: Path) -> None:
    clock = Clock()
    measurements = Measurements(tmp_path / "gpu.jsonl", CPU, 100.0, clock)
    measurements.measure("rounds", 1.0, spending(clock, 1.0), row="loop", work="so it is called")

    def stopped() -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measurements.measure("rounds", 1.0, stopped, row="8")
    assert [line["row"] for line in read(tmp_path / "gpu.jsonl")] == ["loop"]


def test_a_measurement_beyond_the_gpus_memory_is_left_out(tmp_path: Path) -> None:
    def full() -> dict[str, Any]:
        raise torch.OutOfMemoryError

    measurements = Measurements(tmp_path / "gpu.jsonl", CPU, 100.0)
    assert measurements.measure("rounds", 0.0, full, row="256") is None
    assert measurements.lines[0]["left_out"] == "it does not fit into the GPU's memory"


def test_a_failed_measurement_does_not_end_the_others_and_is_told(tmp_path: Path) -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED\nmore")

    measurements = Measurements(tmp_path / "gpu.jsonl", CPU, 100.0)
    assert measurements.measure("rounds", 0.0, broken, row="8") is None and measurements.failed
    assert measurements.lines[0]["left_out"] == "it failed: CUDNN_STATUS_EXECUTION_FAILED"
    assert measurements.measure("rounds", 0.0, lambda: {"best_s": 1.0}, row="32") is not None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "torch finds no GPU on this machine"),
        (["--device", "cpu"], "add --small"),
        (["--device", "gpu"], "give cuda:0, another GPU, or cpu"),
        (["--device", "meta"], "give cuda:0, another GPU, or cpu"),
        (["--seconds", "0"], "give more than 0"),
        (["--seconds", "soon"], "see python -m evals.speed.gpu --help"),
    ],
)
def test_wrong_input_is_one_sentence(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(arguments) == 2
    _, err = capfd.readouterr()
    assert sentence in err and len(err.strip().splitlines()) == 1


def test_a_gpu_beyond_those_there_are_is_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert command.main(["--device", "cuda:2"]) == 2
    assert "there is no GPU 2, there are 2" in capfd.readouterr().err


def test_a_distance_is_that_of_the_client_that_differs_most() -> None:
    start = {"w": torch.zeros(2), "steps": torch.tensor(0)}
    one = [{"w": torch.tensor([3.0, 4.0]), "steps": torch.tensor(5)}] * 2
    other = [one[0], {"w": torch.tensor([3.0, 4.5]), "steps": torch.tensor(5)}]
    assert correctness.distance(one, one, start) == 0.0
    assert correctness.distance(other, one, start) == pytest.approx(0.1)


@pytest.mark.parametrize("change", ["momentum", "batch"])
def test_an_error_of_the_mathematics_is_far_beyond_the_tolerances(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start = correctness._state("cnn_small", torch.float64)
    right = correctness.trained("cnn_small", torch.float64, torch.device("cpu"), "one by one")
    together = correctness.trained("cnn_small", torch.float64, torch.device("cpu"), "cohort")
    assert correctness.distance(together, right, start) < correctness.TOLERANCES["float64"]
    settings = correctness.conf
    changed = {"momentum": {"client_momentum": 0.8}, "batch": {"round": 2}}[change]
    monkeypatch.setattr(correctness, "conf", lambda *arguments: replace(settings(*arguments), **changed))
    wrong = correctness.trained("cnn_small", torch.float64, torch.device("cpu"), "one by one")
    assert correctness.distance(wrong, right, start) > correctness.TOLERANCES["tf32"]


@pytest.mark.parametrize("way", convolutions.WAYS)
def test_ways_to_convolve_agree_with_a_convolution_of_each_client(way: str) -> None:
    x, weight = convolutions.tensors(3, 2, 5, torch.device("cpu"), torch.float64)
    y = convolutions.WAYS[way](x, weight)
    alone = [torch.nn.functional.conv2d(maps, one, padding=1) for maps, one in zip(x.split(2, 1), weight, strict=True)]
    torch.testing.assert_close(y, torch.cat(alone, 1))
    above = torch.randn_like(y)
    pairs = zip(
        torch.autograd.grad(y, (x, weight), above), torch.autograd.grad(torch.cat(alone, 1), (x, weight), above),
        strict=True,
    )  # fmt: skip
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs)


def test_the_page_has_a_row_for_each_convolution() -> None:
    line = {"part": "convolutions", "precision": "float32", "channels": 8, "side": 28, "clients": 100}
    text = page([MACHINE, {**line, "row": "grouped", "ms": 1.5}, {**line, "row": "unfolded", "ms": 0.5}])
    assert "| float32 | 8 | 28 | 100 | 1.5 | - | 0.5 |" in text


MACHINE = {"part": "machine", "command": "python -m evals.speed.gpu", "device": "a GPU", "processor": "a processor",
           "cores": 8, "torch": "2", "cuda": "13", "date": "2026-01-01", "seconds": 540.0}  # fmt: skip


def cohort(row: str, best_s: float, clients: int = 100, model: str = rounds.GOAL_MODEL) -> dict[str, Any]:
    return {"part": "rounds", "model": model, "row": row, "precision": "float32", "clients": clients,
            "best_s": best_s, "worst_s": 2 * best_s, "gpu_mb": 123.4}  # fmt: skip


def test_the_page_tells_whether_the_goals_are_met() -> None:
    stage = {"rounds": 60, "seconds": 0.2, "mean_s": 0.3, "GMACs": 40.0, "test_s": 1.0}
    whole = {
        "part": "fedtrans",
        "work": "60 rounds",
        "precision": "float32",
        "executors": 1,
        "peak_mb_sum": 900.0,
        "writers": 400,
        "stages": {"1": stage},
    }
    check = {"part": "correctness", "check": "cuda, CPU", "model": "cnn_small", "precision": "float32",
             "tolerance": 1e-2}  # fmt: skip
    lines = [MACHINE, {**check, "distance": 1e-4}, {**check, "distance": float("nan")}, cohort("loop", 40.0),
             cohort("100", 4.0), cohort("256", 5.12, 256), {**whole, "whole_s": 700.0}]  # fmt: skip
    text = page(lines)
    shared = page([*lines, {**whole, "executors": 3, "service": True, "whole_s": 599.0}])
    assert "700 s in float32 with one executor and 599 s in float32 with 3 executors under MPS." in shared
    assert "| float32 | 3 under MPS | 1 | 60 |" in shared
    assert "in 600 s, whole job, estimated from 60 rounds: 599 s in float32. The goal is met." in shared
    both = page([*lines, {**whole, "precision": "bfloat16", "whole_s": 598.0}])
    assert "estimated from 60 rounds: 700 s in float32, 598 s in bfloat16. The goal is met in bfloat16 alone." in both
    assert (
        "400 writers are drawn." in text
        and "at the mean seconds per round: 700 s in float32 with one executor." in text
    )
    assert "| float32 | 1 | 1 | 60 | 0.2 | 0.3 | 40 | 1 |" in text
    assert "that hold: 1 of 2." in text and "| 1.0e-04 | 1e-02 | yes |" in text and "**no**" in text
    assert "float32, 8 times the plain loop: 10 times. The goal is met." in text
    assert "in 600 s, whole job, estimated from 60 rounds: 700 s in float32. The goal is not met." in text
    assert "| cohorts of 256 | 2 | 4 | 20x | 123 |" in text  # 256 clients' seconds, for 100
    assert text.rstrip().endswith("## Left out\n\nNothing.")


def test_the_page_compares_a_sweep_one_by_one_with_several_at_a_time() -> None:
    line = {"part": "sweep", "row": "one by one", "jobs": 4, "rounds": 20, "at_once": 1, "seconds": 40.0}
    failed = {"part": "sweep", "row": "as many as fit", "jobs": 4, "rounds": 20, "seconds": 3.0, "failed": "it ended"}
    text = page([MACHINE, {"part": "sweep", "work": "digits"}, line, failed])
    assert "| one by one | 4 | 20 | 1 | 40 |" in text and "as many as fit: it ended." in text


def test_a_page_without_measurements_claims_nothing() -> None:
    left_out = {
        "part": "rounds",
        "model": "cnn_leaf",
        "row": "256",
        "precision": "float32",
        "left_out": "3 s were left",
    }
    text = page([MACHINE, left_out])
    assert text.count("Nothing was measured.") == 6 and text.count("not measured.") == 2 and "The goal" not in text
    assert "- rounds, cnn_leaf, 256, float32: 3 s were left." in text
    assert against_loop([left_out], "cnn_leaf", "256", "float32") is None


def service_program(folder: Path, exit_code: int = 0) -> str:
    """A program in place of MPS's that writes its arguments and input."""
    program = folder / "nvidia-cuda-mps-control"
    lines = ["#!/bin/sh", 'cd "$CUDA_MPS_PIPE_DIRECTORY/../.."', 'echo "$*" >> said', "[ $# = 1 ] || cat >> said",
             f"exit {exit_code}"]  # fmt: skip
    program.write_text("\n".join(lines), encoding="utf-8")
    program.chmod(0o700)
    return str(program)


def test_the_service_of_a_shared_gpu_ends_with_the_block(tmp_path: Path) -> None:
    program = service_program(tmp_path)
    with pytest.raises(KeyError), sharing.shared_gpu(program, tmp_path / "mps") as variables:
        assert (tmp_path / "said").read_text(encoding="utf-8") == "-d\n"
        assert variables == {
            f"CUDA_MPS_{name.upper()}_DIRECTORY": str(tmp_path / "mps" / name) for name in ("pipe", "log")
        }
        raise KeyError
    assert (tmp_path / "said").read_text(encoding="utf-8") == "-d\n\nquit\n"


def test_a_service_that_does_not_start_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="did not start"),
        sharing.shared_gpu(service_program(tmp_path, exit_code=1), tmp_path / "mps"),
    ):
        pytest.fail("the block is not entered")


def test_several_executors_are_measured_only_where_they_can_share_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "writers").mkdir()
    (tmp_path / "writers" / DESCRIPTION).touch()
    monkeypatch.setattr(sharing, "control", lambda: None)
    measurements = Measurements(tmp_path / "gpu.jsonl", Setting(torch.device("cuda")), 60.0)
    fedtrans.run(measurements, tmp_path)
    reasons = {(line["precision"], line["executors"]): line["left_out"] for line in measurements.lines}
    assert reasons[("float32", 3)] == "this machine has no nvidia-cuda-mps-control"
    assert "expected to take 60 s" in reasons[("float32", 1)]


def test_the_whole_command_runs_on_a_cpu_and_makes_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_a_gpu = (command.HERE.parent / "gpu.md").read_bytes()
    assert command.main(["--device", "cpu", "--small", "--seconds", "3000", "--work", str(tmp_path)]) == 0
    lines = read(tmp_path / "gpu.jsonl")
    assert all(map(correct, of(lines, "correctness"))) and len(of(lines, "correctness")) == 6
    measured = {(line["model"], line["row"], line["precision"]) for line in of(lines, "rounds")}
    assert {row for _, row, _ in measured} == {"loop", "100", "100 in the other layout", "8"}
    assert {precision for _, _, precision in measured} == {"float32", "bfloat16"}
    ways = [(line["precision"], line["row"]) for line in of(lines, "convolutions")]
    assert ways == [(precision, way) for precision in ("float32", "bfloat16") for way in convolutions.WAYS]
    assert [line["method"] for line in of(lines, "server steps")] == ["HypeMeFed", "Moss"]
    jobs = {(line["precision"], line["executors"]): line for line in of(lines, fedtrans.PART) if "stages" in line}
    assert set(jobs) == {("float32", 1), ("float32", 3), ("bfloat16", 1), ("bfloat16", 3)}
    for (precision, executors), job in jobs.items():
        assert job["measured_rounds"] == 2 and job["whole_s"] > 0 and "failed" not in job
        folder = headline.log_folder(fedtrans.job_folder(tmp_path, precision, executors))
        stage = headline.read(folder)[1]
        statistics_s, test_s = stage["statistics_s"] / executors, stage["test_s"]  # executors measure side by side
        assert 0 < statistics_s < test_s
        of_the_paper = statistics_s + (test_s - statistics_s) * 3400 / 8  # as only tests grow with the writers
        assert job["stages"]["1"]["test_s"] == pytest.approx(of_the_paper)
        assert f"num_executors={executors}," in (folder / "aggregator" / "log").read_text(encoding="utf-8")
    sweeps = {line["row"]: line for line in of(lines, sweep.PART) if "row" in line}
    assert list(sweeps) == list(sweep.ROWS) and all("failed" not in line for line in sweeps.values())
    assert sweeps["one by one"]["at_once"] == 1 and all(line["jobs"] == 2 for line in sweeps.values())
    assert [line["left_out"] for line in lines if "left_out" in line] == ["a CPU has no CUDA graphs"]
    text = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert text == page(json.loads(json.dumps(lines))) and text.strip() in capsys.readouterr().out
    assert (command.HERE.parent / "gpu.md").read_bytes() == of_a_gpu


def test_a_job_without_growth_has_evaluations_too() -> None:
    found = {1: {"seconds": 3.6, "test_s": 36.0}, 2: {"seconds": 3.6, "test_s": 72.0}}
    assert headline.hours(found).endswith(f"Without growth: {(2_000 * 3.6 + 41 * 36.0) / 3600:.2f} hours.")
