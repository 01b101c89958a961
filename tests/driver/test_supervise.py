"""``driver start --supervise`` with fake processes: what dies is started again, but not for ever."""

import json
import os
import signal
from pathlib import Path

import pytest

from fedscale_ext.driver import supervision
from fedscale_ext.driver.supervision import Restarts, resuming
from fedscale_ext.metrics.job_folder.restarts import count_restarts, note_restart

from .conftest import done, processes_of, wait_until


def record(state):
    return json.loads((state / "jobs/fake/job.json").read_text())


def start(fedscale, write_conf, *options, **env):
    return fedscale("driver", "start", write_conf(), "--set=time_stamp=t", "--supervise", *options, **env)


def test_results_that_a_resumed_run_removes_meanwhile_are_none(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "is_file", lambda path: True)  # as it was before
    assert not supervision.has_results(tmp_path, 0.0)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_dead_aggregator_goes_on_from_its_checkpoint_or_anew(fedscale, state, write_conf, tmp_path, checkpoint):
    what = "kill with checkpoint once" if checkpoint else "kill once"
    process = start(
        fedscale, write_conf, FAKE_AGGREGATOR=what, FAKE_EXECUTOR="stay", FAKE_MARKER=str(tmp_path / "marker")
    )
    code, out, err = done(process)
    assert code == 0, err
    assert "note: aggregator was ended by SIGKILL after round 3; it is started again\n" in err
    assert "round 12/12" in out
    log = (state / "jobs/fake/output.log").read_text()
    starts = [json.loads(line.split(" | ")[1]) for line in log.splitlines() if line.startswith('aggregator | ["')]
    assert [("--resume=True" in argv) for argv in starts] == [False, checkpoint]
    assert len({word for argv in starts for word in argv if word.startswith("--ps_port=")}) == 1
    assert count_restarts(tmp_path / "out/logs/fake/t") == {"aggregator": 1}
    wait_until(lambda: not processes_of(state), 5)


def test_a_dead_executor_is_started_again(fedscale, state, write_conf, tmp_path):
    process = start(
        fedscale, write_conf, FAKE_AGGREGATOR="slowly", FAKE_EXECUTOR="die once", FAKE_MARKER=str(tmp_path / "marker")
    )
    code, _, err = done(process)
    assert code == 0, err
    assert "note: executor 2 ended with exit code 3 after round" in err
    log = (state / "jobs/fake/output.log").read_text()
    assert log.count("executor says --this_rank=2") == 2
    assert count_restarts(tmp_path / "out/logs/fake/t") == {"executor 2": 1}


def test_restarts_without_progress_come_to_an_end(fedscale, state, write_conf):
    process = start(fedscale, write_conf, FAKE_AGGREGATOR="die", FAKE_EXECUTOR="wait")
    wait_until(lambda: (state / "jobs/fake/output.log").exists())
    wait_until(lambda: (state / "jobs/fake/output.log").read_text().count("aggregator | plain words") == 3)
    process.send_signal(signal.SIGINT)  # it would go on for half a minute
    assert done(process)[0] == 130
    assert not processes_of(state)
    assert record(state)["status"] == "stopped"


def test_bad_input_is_no_reason_to_start_again(fedscale, state, write_conf):
    code, _, err = done(start(fedscale, write_conf, FAKE_AGGREGATOR="bad input", FAKE_EXECUTOR="wait"))
    assert (code, err) == (2, "fedscale: num_participants 9 is above the 4 clients; lower it\n")


def test_stop_ends_a_supervised_job_for_good(fedscale, state, write_conf):
    process = start(fedscale, write_conf, FAKE_AGGREGATOR="wait", FAKE_EXECUTOR="wait")
    wait_until(lambda: (state / "jobs/fake/job.json").exists() and record(state)["round"])
    os.kill(record(state)["children"][0]["pid"], signal.SIGKILL)
    code, out, _ = done(fedscale("driver", "stop", "fake"))
    assert (code, out) == (0, "job fake is stopped\n")
    assert done(process)[0] == 130
    assert not processes_of(state)


def test_limits_and_pauses(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(supervision.time, "monotonic", lambda: now[0])
    restarts = Restarts()
    pauses = []
    while restarts.plan("executor 1"):
        pauses.append(restarts.next() - now[0])
        assert restarts.take() == (["executor 1"] if pauses[-1] == 0 else [])
        now[0] += pauses[-1]
        assert restarts.take() == (["executor 1"] if pauses[-1] else [])
    assert pauses == [0, 0.5, 1, 2, 5, 5, 5, 5, 5, 5]
    assert restarts.plan("executor 2")  # each process has its own count
    restarts.round_finished(1)
    assert restarts.plan("executor 1")
    assert restarts.planned() == ["executor 2", "executor 1"]
    restarts.cancel()
    assert (restarts.planned(), restarts.next()) == ([], None)


def test_rounds_that_are_done_again_are_no_progress():
    restarts = Restarts()
    for _ in range(10):
        assert restarts.plan("aggregator")
        for number in (11, 12):  # since the checkpoint of round 10
            restarts.round_finished(number)
    assert [restarts.plan("aggregator") for _ in range(2)] == [True, False]
    restarts.round_finished(13)
    assert restarts.plan("aggregator")


def test_the_job_goes_on_without_an_executor_that_refuses_its_input_after_a_restart(
    fedscale, state, write_conf, tmp_path
):
    marker = {"FAKE_MARKER": str(tmp_path / "marker")}
    process = start(fedscale, write_conf, FAKE_AGGREGATOR="slowly", FAKE_EXECUTOR="lose gpu", **marker)
    code, _, err = done(process)
    assert code == 0, err
    assert "note: executor 2 ended with exit code 3 after round" in err
    assert "note: executor 2 ended with exit code 2 (cuda:1 is not there); the job goes on without it\n" in err
    assert record(state)["status"] == "finished"


def test_a_run_that_begins_anew_does_not_go_on_from_older_checkpoints(fedscale, state, write_conf, tmp_path):
    folder = tmp_path / "out" / "logs" / "fake" / "t" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "checkpoint-000009.safetensors").touch()
    marker = {"FAKE_MARKER": str(tmp_path / "marker")}
    code, _, err = done(start(fedscale, write_conf, FAKE_AGGREGATOR="kill early once", FAKE_EXECUTOR="stay", **marker))
    assert code == 0, err
    assert "--resume=True" not in (state / "jobs/fake/output.log").read_text()
    conf = write_conf({"time_stamp": "t"})
    code, _, err = done(fedscale("driver", "start", conf, FAKE_AGGREGATOR="die", FAKE_EXECUTOR="wait"))
    assert code == 1 and "continue the job" not in err


def test_a_half_written_restart_is_passed_over(tmp_path):
    note_restart(tmp_path, "executor 1", "why", 3)
    note_restart(tmp_path, "aggregator", "why", 4)
    note_restart(tmp_path, "executor 1", "why", 4)
    with (tmp_path / "restarts.jsonl").open("a") as file:
        file.write('{"process": "exec')
    assert count_restarts(tmp_path) == {"aggregator": 1, "executor 1": 2}
    assert count_restarts(tmp_path / "absent") == {}
    note_restart(tmp_path, "executor 2", "why", 5)
    assert count_restarts(tmp_path) == {"aggregator": 1, "executor 1": 2, "executor 2": 1}
    with (tmp_path / "restarts.jsonl").open("a") as file:
        file.write('{"process": "exec{"process": "executor 1"}\n')  # as an earlier release went on after a half line
    assert count_restarts(tmp_path) == {"aggregator": 1, "executor 1": 2, "executor 2": 1}


@pytest.mark.parametrize("ready", [False, True])
def test_an_aggregator_that_ended_before_it_went_back_goes_back_again(tmp_path: Path, ready: bool) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for round in (2, 3):
        (folder / f"checkpoint-{round:06d}.safetensors").touch()
    argv = ["aggregator.py", "--rounds=6", "--resume_from=2"]
    assert resuming(argv, tmp_path, ready) == (["aggregator.py", "--rounds=6", "--resume=True"] if ready else argv)


def test_checkpoints_count_whatever_the_clock_says_once_the_aggregator_is_ready(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint-000040.safetensors").touch()
    for argv in (["--rounds=60"], ["--rounds=60", "--resume=False"]):
        assert resuming(argv, tmp_path, ready=False) == ["--rounds=60"]
        assert resuming(argv, tmp_path, ready=True) == ["--rounds=60", "--resume=True"]
    assert resuming(["--resume=True"], tmp_path, ready=False) == ["--resume=True"]
    assert resuming(["--rounds=60"], tmp_path / "absent", ready=True) == ["--rounds=60"]
