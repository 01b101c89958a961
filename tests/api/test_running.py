"""``fedscale_ext.run``: what a script or a notebook gets, sees and is told."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fedscale_ext
from fedscale_ext.cli.main import main
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs, run_lock
from fedscale_ext.server import records
from fedscale_ext.tasks.train import Train


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "plot_job", lambda folder: folder / "plot.png")  # most of a tiny job's time


def test_a_job_gives_its_result_and_shows_how_far_it_is(job_file: Path, capfd: pytest.CaptureFixture[str]):
    result = fedscale_ext.run(job_file, rounds=1)
    assert result.finished and result["rounds"] == 1
    assert result.path == job_file.parent / "logs" / "tiny" / "logs"
    written = json.loads((result.path / "summary.json").read_text())
    assert dict(result) == {**written, "log_dir": str(result.path)}
    out, err = capfd.readouterr()
    assert out == ""
    assert "round 1/1, 4 clients, 1 model" in err


def test_a_fresh_process_needs_no_import_before(job_file: Path):
    code = f"import fedscale_ext; fedscale_ext.run({str(job_file)!r}, rounds=1, progress=False)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


def test_progress_can_be_silent(job_file: Path, capfd: pytest.CaptureFixture[str]):
    fedscale_ext.run(job_file, rounds=1, progress=False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("conf", "keys", "sentence"),
    [
        ("quickstrat", {}, "did you mean 'quickstart'"),
        (None, {"ronds": 3}, "unknown job_conf key 'ronds'; did you mean 'rounds'"),
        (None, {"job_name": "../../esc"}, "job_name '../../esc' must be a file name"),
        (None, {"job_name": ""}, "job_name '' must be a file name"),
        (None, {"rounds": 0}, "key 'rounds' is 0; it must be above zero"),
        (None, {"resume": True}, "has no checkpoint below"),
        (None, {"data_dir": "nowhere"}, "nowhere"),
        (None, {"data_dir": "no 😀"}, "no 😀"),
        (None, {"log_path": "/dev/null"}, "log_path /dev/null is no folder; set it to"),
        (None, {"processes": True, "data_dir": "nowhere"}, "nowhere"),
    ],
)
def test_bad_input_is_one_sentence(
    job_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    conf: str | None,
    keys: dict[str, Any],
    sentence: str,
):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    if "resume" in keys:
        text = job_file.read_text().replace("  - time_stamp: logs\n", "")
        job_file.write_text(text)
    with pytest.raises(UserError) as error:
        fedscale_ext.run(conf or job_file, progress=False, **keys)
    assert sentence in str(error.value)


def test_an_interrupt_ends_even_what_is_trained_and_the_job_can_go_on(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    text = job_file.read_text().replace("  - time_stamp: logs\n", "")
    job_file.write_text(text)
    whole = fedscale_ext.run(job_file, progress=False, time_stamp="whole", job_name="whole")
    train = Train.run

    def stuck_in_round_two(self: Train, worker: Any, header: dict[str, Any]) -> Any:
        if header["round"] == 1:
            return train(self, worker, header)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        while True:  # a unit that takes for ever
            pass

    # what a shell starts in the background ignores the signal, and so does a test run there
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Train, "run", stuck_in_round_two)
            fedscale_ext.run(job_file, checkpoint_interval=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "executor" not in {thread.name for thread in threading.enumerate()}
    assert "job tiny was stopped; resume=True" in capfd.readouterr().err
    result = fedscale_ext.run(job_file, checkpoint_interval=1, progress=False, resume=True)
    assert result["accuracy"] == whole["accuracy"] and result["loss"] == whole["loss"]
    assert result["resumed"]


def test_a_run_is_resumed_with_the_settings_that_it_was_started_with(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    first = fedscale_ext.run(job_file, rounds=1, progress=False, time_stamp="first")
    job_file.write_text(job_file.read_text().replace("  - time_stamp: logs\n", ""))
    for keys in ({}, {"time_stamp": "first"}, {"processes": True}):
        with pytest.raises(UserError, match=r"job tiny ran with other settings: learning_rate was 0\.05 and is 0\.3"):
            fedscale_ext.run(job_file, rounds=2, progress=False, resume=True, learning_rate=0.3, **keys)
    other = {"rounds": 2, "resume": True, "progress": False, "fedmd.groups": [3, 4]}  # not of this method
    assert fedscale_ext.run(job_file, log_path=str(tmp_path / "elsewhere"), **other).path == first.path


def test_an_interrupt_when_the_results_are_written_says_that_the_job_is_done(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    def interrupted(folder: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedscale_ext.server.records.plot_job", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fedscale_ext.run(job_file, rounds=1, log_path=str(tmp_path / "my logs"))
    (summary,) = tmp_path.glob("my logs/logs/tiny/*/summary.json")
    said = f"job tiny is done, results are in {summary.parent}; `fedscale report '{summary.parent}'` draws it"
    assert said in capfd.readouterr().err


def test_processes_give_the_same_result(job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    here = fedscale_ext.run(job_file, rounds=1, progress=False, job_name="here")
    apart = fedscale_ext.run(job_file, rounds=1, progress=False, processes=True, worker_ips="localhost:[1]")
    assert apart["accuracy"] == here["accuracy"] and apart["loss"] == here["loss"]
    assert fedscale_ext.load("tiny")["accuracy"] == here["accuracy"]


def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code of ``fedscale``, within this process, and what it says."""
    monkeypatch.setattr("sys.argv", ["fedscale", *words])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capfd.readouterr()
    return int(end.value.code or 0), out + err


def test_a_job_in_this_process_is_found_by_its_name(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    for stamp in ("older", "newer"):
        assert fedscale_ext.load(fedscale_ext.run(job_file, rounds=1, time_stamp=stamp, progress=False).name).path == (
            job_file.parent / "logs" / "tiny" / stamp
        )
    assert (jobs.find("tiny").status, jobs.find("tiny").complete(1)) == ("finished", True)
    code, output = command(monkeypatch, capfd, "driver", "status", "tiny")
    assert code == 0 and "finished" in output and "output.log" not in output
    assert command(monkeypatch, capfd, "driver", "stop", "tiny")[1].startswith("job tiny is not running; it finished")
    code, output = command(monkeypatch, capfd, "driver", "logs", "tiny")
    assert code == 2 and output.startswith("fedscale: job tiny ran in a Python process, not in processes of its own")
    # bad input that is found late leaves the name with what it stood for
    with pytest.raises(UserError):
        fedscale_ext.run(job_file, model="resnet18", num_participants=99, time_stamp="bad", progress=False)
    assert fedscale_ext.load("tiny").path.name == "newer"


def test_a_job_trains_while_the_caller_looks_for_nan(job_file: Path):
    expected = fedscale_ext.run(job_file, rounds=1, time_stamp="plain", progress=False)
    with torch.autograd.set_detect_anomaly(True):
        result = fedscale_ext.run(job_file, rounds=1, time_stamp="looking", progress=False)
        assert torch.is_anomaly_enabled()
    assert result["accuracy"] == expected["accuracy"] and result["models"] == expected["models"]


@pytest.mark.parametrize("absolute", [False, True])
def test_a_time_stamp_does_not_lead_out_of_the_jobs_folder(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], absolute: bool
):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    stamp = str(tmp_path / "x") if absolute else "../x"
    with pytest.raises(UserError, match=r"key 'time_stamp' is .* must be a folder's name"):
        fedscale_ext.run(job_file, time_stamp=stamp, progress=False)
    code, output = command(monkeypatch, capfd, "driver", "start", str(job_file), f"--set=time_stamp={stamp}")
    assert code == 2 and output.count("\n") == 1
    assert output.startswith("fedscale: --set time_stamp: key 'time_stamp' is ")
    assert not (job_file.parent / "logs").exists() and not (tmp_path / "x").exists()


def test_a_job_in_this_process_is_running_but_no_command_ends_it(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    seen: list[Any] = []

    def look(folder: Path) -> Path:
        seen.extend([jobs.find("tiny").state(), fedscale_ext.load("tiny").path, jobs.find("tiny").round])
        seen.append(command(monkeypatch, capfd, "driver", "stop", "tiny"))
        raise RuntimeError("no paper")

    monkeypatch.setattr(records, "plot_job", look)
    with pytest.raises(RuntimeError):
        fedscale_ext.run(job_file, rounds=1)
    state, path, done, (code, output) = seen
    assert (state, path, done["round"]) == ("running", job_file.parent / "logs" / "tiny" / "logs", 1)
    assert code == 2 and f"job tiny runs in the Python process {os.getpid()}; interrupt it there" in output
    assert (jobs.find("tiny").status, jobs.find("tiny").reason) == ("failed", "RuntimeError: no paper")


def test_a_job_whose_name_is_taken_or_has_no_place_trains_all_the_same(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    with jobs.claim("tiny"):
        assert fedscale_ext.run(job_file, rounds=1).finished
    assert "note: this run cannot be found by its name: job tiny is running" in capfd.readouterr().err
    monkeypatch.setenv("FEDSCALE_EXT_STATE", "/dev/null")
    assert fedscale_ext.run(job_file, rounds=1).finished
    assert "note: this run cannot be found by its name: the state directory" in capfd.readouterr().err


def test_runs_that_begin_in_the_same_second_do_not_mix(job_file: Path, monkeypatch: pytest.MonkeyPatch):
    job_file.write_text(job_file.read_text().replace("  - time_stamp: logs\n", ""))
    monkeypatch.setattr("fedscale_ext.driver.runs.new_stamp", lambda config: "1128_132854")
    first, second = (fedscale_ext.run(job_file, rounds=1, progress=False, seed=seed) for seed in (1, 2))
    assert [result.path.name for result in (first, second)] == ["1128_132854", "1128_132854_2"]
    assert [result["config"]["seed"] for result in (first, second)] == [1, 2]


def test_a_run_that_another_process_writes_is_not_resumed(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    first = fedscale_ext.run(job_file, rounds=1, progress=False, checkpoint_interval=1)
    before = (first.path / "metrics.jsonl").read_bytes()
    with jobs.claim("tiny"), run_lock.sole_writer(first.path), pytest.raises(UserError, match="is written by process"):
        fedscale_ext.run(job_file, rounds=2, progress=False, checkpoint_interval=1, resume=True)
    assert (first.path / "metrics.jsonl").read_bytes() == before
    assert fedscale_ext.run(job_file, rounds=2, progress=False, checkpoint_interval=1, resume=True)["rounds"] == 2


def test_an_interrupt_before_the_first_checkpoint_does_not_offer_those_of_an_earlier_run(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    older = job_file.parent / "logs" / "tiny" / "logs" / "checkpoints" / "checkpoint-000001.safetensors"
    older.parent.mkdir(parents=True)
    older.touch()

    def interrupted(config: object, emit: Callable[[dict[str, Any]], None]) -> None:
        for event in events:
            emit(event)
        raise KeyboardInterrupt

    monkeypatch.setattr("fedscale_ext.entry.in_process.run_in_process", interrupted)
    events: list[dict[str, Any]] = []
    for said in ("it has no checkpoint yet: start it anew\n", "resume=True, time_stamp='logs' among"):
        with pytest.raises(KeyboardInterrupt):
            fedscale_ext.run(job_file)
        assert f"note: job tiny was stopped; {said}" in capfd.readouterr().err
        os.utime(older, (1.0, 1.0))  # the run's, by a clock that was set back
        events = [{"event": "ready"}]
