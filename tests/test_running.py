"""``fedscale_ext.run``: what a script or a notebook gets, sees and is told."""

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import fedscale_ext
from fedscale_ext.errors import UserError
from fedscale_ext.runtime import records
from fedscale_ext.runtime.unit_work import UnitWork


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


def test_progress_can_be_silent(job_file: Path, capfd: pytest.CaptureFixture[str]):
    fedscale_ext.run(job_file, rounds=1, progress=False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("conf", "keys", "sentence"),
    [
        ("quickstrat", {}, "did you mean 'quickstart'"),
        (None, {"ronds": 3}, "unknown job_conf key 'ronds'; did you mean 'rounds'"),
        (None, {"rounds": 0}, "key 'rounds' is 0; it must be above zero"),
        (None, {"worker_ips": ["localhost:[0]"]}, "asks for no executor"),
        (None, {"resume": True}, "has no checkpoint below"),
        (None, {"data_dir": "nowhere"}, "nowhere"),
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
    train = UnitWork.train

    def stuck_in_round_two(self: UnitWork, header: dict[str, Any]) -> Any:
        if header["round"] == 1:
            return train(self, header)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        while True:  # a unit that takes for ever
            pass

    # what a shell starts in the background ignores the signal, and so does a test run there
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(UnitWork, "train", stuck_in_round_two)
            fedscale_ext.run(job_file, checkpoint_interval=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "executor" not in {thread.name for thread in threading.enumerate()}
    assert "job tiny was stopped; resume=True" in capfd.readouterr().err
    result = fedscale_ext.run(job_file, checkpoint_interval=1, progress=False, resume=True)
    assert result["accuracy"] == whole["accuracy"] and result["loss"] == whole["loss"]
    assert result["resumed"]


def test_an_interrupt_when_the_results_are_written_says_that_the_job_is_done(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    def interrupted(folder: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedscale_ext.runtime.records.plot_job", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fedscale_ext.run(job_file, rounds=1)
    (summary,) = job_file.parent.glob("logs/tiny/*/summary.json")
    assert f"job tiny is done, results are in {summary.parent}; `fedscale report" in capfd.readouterr().err


def test_processes_give_the_same_result(job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    here = fedscale_ext.run(job_file, rounds=1, progress=False, job_name="here")
    apart = fedscale_ext.run(job_file, rounds=1, progress=False, processes=True, worker_ips="localhost:[1]")
    assert apart["accuracy"] == here["accuracy"] and apart["loss"] == here["loss"]
    assert fedscale_ext.load("tiny")["accuracy"] == here["accuracy"]
