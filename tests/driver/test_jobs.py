"""The memory of jobs: who is running, and that only the right processes are ever signalled."""

import dataclasses
import errno
import json
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from rich.console import Console
from written_job import write_job

from fedscale_ext.cli import job_status
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs
from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.progress import Display
from fedscale_ext.driver.run import Run, start
from fedscale_ext.driver.sweeps import sweep_records
from fedscale_ext.report.job.loading import load_job

from .conftest import done


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def job(driver: Proc, **changes) -> jobs.Job:
    record = jobs.Job("fake", "conf.yml", "/tmp/out", "stamp", ["python"], driver)
    return dataclasses.replace(record, **changes)


def test_notices_are_kept_once_and_not_without_end():
    record = job(Proc("driver", 5, 1.5))
    events = [{"event": "notice", "message": text} for text in ("slow", "slow", "late")]
    assert [record.note_event(event) for event in events] == [True, False, True]
    for number in range(200):
        record.note_event({"event": "notice", "message": str(number)})
    assert record.notices[:2] == ["slow", "late"] and len(record.notices) == 100


def test_whoever_joins_or_leaves_is_told_once():
    record = job(Proc("driver", 5, 1.5))
    local = {"executor": "1", "host": "here", "joined": False}
    other = {"executor": "2", "host": "there", "joined": True}
    said = [record.note_executors({"executors": lines}) for lines in ([local], [local, other], [other], [])]
    assert said == [[], ["executor 2 joined from there"], [], ["executor 2, which had joined, is gone"]]
    assert record.executors == []


def test_a_job_that_nobody_is_left_of_says_once_that_it_waits_and_how_long(monkeypatch):
    monkeypatch.setattr(jobs.time, "time", lambda: 1000.0)
    record, there = job(Proc("driver", 5, 1.5)), {"executor": "2", "host": "there", "joined": False}
    lost = {**there, "device": "cpu", "lost_at": 990.0, "units_done": 0}
    events = [{"executors": lines, "lost": away, "replacement_s": 90.0}
              for lines, away in (([there], []), ([], [lost]), ([], [lost]))]  # fmt: skip
    waits = "no executor is left: the job waits up to 90 s (replacement_s) for another one"
    assert [record.note_executors(event) for event in events] == [[], [waits], []]
    monkeypatch.setattr(jobs.time, "time", lambda: 1002.0)
    assert job_status._executors(record) == {
        "waits": "for 2.0 s for an executor, as none is left; up to 90 s (replacement_s)",
        "executor 2": "there, cpu: lost 12.0 s ago",
    }
    record.note_executors(events[0])
    assert (record.alone, record.lost) == (None, [])


def test_status_tells_of_each_executor_what_it_does_and_how_fast(monkeypatch):
    monkeypatch.setattr(job_status.time, "time", lambda: 1000.0)
    idle = {"executor": "1", "host": "here", "device": "cpu", "joined": False, "unit": 0, "kind": "", "round": 0,
            "clients": 0, "since": 0.0, "units_done": 0, "clients_done": 0, "busy_s": 0.0}  # fmt: skip
    busy = {**idle, "executor": "2", "host": "there", "device": "cuda:1", "joined": True, "unit": 7, "round": 3,
            "kind": "client_train", "clients": 5, "since": 998.0, "units_done": 1200, "clients_done": 6000,
            "busy_s": 600.0}  # fmt: skip
    argv = ["python", "entry.py", "--ps_ip=::1", "--ps_port=80", "--token_file=/a b/token"]
    facts = job_status._executors(job(Proc("driver", 5, 1.5), executors=[idle, busy], argv=argv))
    assert facts == {
        "executor 1": "here, cpu: waits",
        "executor 2": "there, cuda:1, joined: client_train of 5 clients in round 3 for 2.0 s; "
        "1,200 units in 600.0 s, 10 clients/s",
        "more join by": "fedscale executor join '[::1]:80' --token-file '/a b/token'",
    }
    files = ["--tls_ca=ca.pem", "--tls_executor_cert=x y", "--tls_executor_key=key", "--tls_aggregator_key=no"]
    command = job(Proc("driver", 5, 1.5), argv=[*argv, *files]).join_command()
    assert command == f"{facts['more join by']} --tls-ca ca.pem --tls-cert 'x y' --tls-key key"
    waiting = job_status._executors(job(Proc("driver", 5, 1.5), argv=argv))
    assert waiting == {"more join by": facts["more join by"]}
    assert job_status._executors(job(Proc("driver", 5, 1.5))) == {}


def test_a_run_that_is_resumed_after_its_last_round_knows_it_from_its_summary():
    record = job(Proc("driver", 5, 1.5))
    record.note_event({"event": "summary", "summary": {"rounds": 3, "accuracy": {"mean": 0.25}}})
    assert record.accuracy == 0.25
    assert dataclasses.replace(record, status="finished").complete(3)
    record.note_event({"event": "round", "round": 4, "rounds": 9, "accuracy": 0.5})
    record.note_event({"event": "summary", "summary": {"rounds": 3, "accuracy": {"mean": 0.25}}})
    assert record.round["round"] == 4 and record.accuracy == 0.5
    untested = job(Proc("driver", 5, 1.5))
    untested.note_event({"event": "summary", "summary": {"rounds": 3, "accuracy": None}})
    assert untested.accuracy is None


@pytest.mark.parametrize(("rounds", "interval", "there"), [(None, 1, False), (1, 1, True), (4, 5, False), (7, 5, True)])
def test_a_checkpoint_elsewhere_is_known_by_the_rounds_that_were_heard_of(
    rounds: int | None, interval: int, there: bool
) -> None:
    record = job(Proc("driver", 5, 1.5), round=None if rounds is None else {"round": rounds, "rounds": 9})
    assert record.has_written_checkpoint(interval) is there


def test_a_job_that_stopped_early_is_complete_at_the_rounds_that_were_asked_for():
    record = job(Proc("driver", 5, 1.5), status="finished")
    record.note_event({"event": "round", "round": 14, "rounds": 20, "accuracy": 0.5})
    assert not record.complete(20)
    summary = {"rounds": 14, "accuracy": {"mean": 0.5}, "stopped": "accuracy rose by no more than 0.01"}
    record.note_event({"event": "summary", "summary": summary})
    assert record.complete(20) and record.complete(14) and not record.complete(30)


def test_record_is_read_back(state):
    written = job(Proc("driver", 5, 1.5), children=[Proc("aggregator", 6, 2.5)], round={"round": 3, "rounds": 9})
    jobs.write(written)
    assert jobs.read("fake") == written
    assert os.listdir(state / "jobs/fake") == ["job.json"]
    assert str(written.log_dir) == "/tmp/out/logs/fake/stamp"
    path = state / "jobs/fake/job.json"
    path.write_text(path.read_text().replace('"cluster": {}', '"cluster": null'))  # as earlier releases wrote it
    assert jobs.read("fake") == written


def test_records_are_read_without_a_list_of_all(state, monkeypatch):
    jobs.write(job(Proc("driver", 5, 1.5)))
    monkeypatch.setattr(jobs, "names", lambda: pytest.fail("listed all jobs"))
    assert jobs.read("fake").name == "fake" and job_status.row("fake")[:2] == ["fake", "failed"]
    assert job_status.row_in_sweep("other", None)[:2] == ["other", "not begun"]
    assert [jobs.read(name) for name in ("other", "../jobs/fake", "", "a" * 300, "fake/job.json", "nul\0")] == [
        None
    ] * 6
    assert [path.name for path in (state / "jobs").iterdir()] == ["fake"]
    (state / "jobs" / "file").write_text("no folder")
    assert jobs.read("file") is None


def test_all_sweeps_are_read_with_one_list_of_them(state, monkeypatch):
    point = sweep_records.Point("fake", "fake", None, ())
    for number in range(3):
        sweep_records.write(sweep_records.Sweep(f"s{number}", "conf.yml", (), {}, (point,), Proc("sweep", 5, 1.5)))
    lists, names = [], sweep_records.names
    monkeypatch.setattr(sweep_records, "names", lambda: lists.append(1) or names())
    intact, damaged = sweep_records.recorded()
    assert ([sweep.name for sweep in intact], damaged, len(lists)) == (["s0", "s1", "s2"], [], 1)
    assert sweep_records.read("../sweeps/s0") is None and sweep_records.read("s0") == intact[0]


def test_reader_never_sees_half_a_record(state):
    jobs.write(job(Proc("driver", 1, 1.0)))
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            jobs.write(job(Proc("driver", 1, 1.0), argv=["x" * 5000]))

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(200):
            assert jobs.read("fake") is not None
    finally:
        stop.set()
        writer.join()


def test_reused_process_number_is_never_signalled(state, sleeper, call):
    other = Proc("driver", sleeper.pid, psutil.Process(sleeper.pid).create_time() - 100)
    jobs.write(job(other, children=[dataclasses.replace(other, name="aggregator")]))
    assert jobs.find("fake").state() == "failed"
    code, out, _ = call("driver", "stop", "fake")
    assert (code, out) == (0, "job fake is not running; it failed\n")
    assert sleeper.poll() is None


def test_a_process_is_known_after_the_clock_was_set(state, sleeper, monkeypatch):
    jobs.write(job(Proc.of("driver", sleeper.pid)))
    created = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: created(process) + 3600)
    assert jobs.find("fake").state() == "running"
    assert not Proc("driver", sleeper.pid, created(psutil.Process(sleeper.pid)), "another-boot 5").running()
    assert jobs.stop(jobs.find("fake"))
    assert sleeper.wait(5) < 0


def test_a_record_of_an_earlier_release_knows_its_process(state, sleeper):
    record = job(Proc.of("driver", sleeper.pid))
    data = dataclasses.asdict(record)
    del data["driver"]["born"]
    jobs.folder("fake").joinpath("job.json").write_text(json.dumps(data))
    assert jobs.find("fake").state() == "running" and jobs.find("fake").driver.born is None


def test_children_that_outlived_their_driver_are_stopped(state, sleeper):
    jobs.write(job(Proc("driver", sleeper.pid, 0.0), children=[Proc.of("aggregator", sleeper.pid)]))
    assert jobs.stop(jobs.find("fake"))
    assert sleeper.wait(5) < 0


def test_job_of_another_machine_is_left_alone(state, sleeper):
    jobs.write(job(Proc.of("driver", sleeper.pid), host=f"not-{platform.node()}"))
    assert jobs.find("fake").state() == "running"
    with pytest.raises(UserError, match="stop it there"):
        jobs.stop(jobs.find("fake"))
    assert sleeper.poll() is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"name": "fake"}', "{half"])
def test_damaged_record(state, call, text):
    jobs.folder("fake").joinpath("job.json").write_text(text)
    with pytest.raises(UserError, match="damaged; delete"):
        jobs.read("fake")
    assert "damaged" in call("driver", "status")[1]


def test_unknown_job_gets_a_suggestion(state):
    with pytest.raises(UserError, match="there is no job 'fake'; no job was started here yet"):
        jobs.find("fake")
    assert not (state / "jobs/fake").exists()
    jobs.write(job(Proc("driver", 1, 1.0)))
    with pytest.raises(UserError, match="there is no job 'fakr'; did you mean 'fake'"):
        jobs.find("fakr")
    with pytest.raises(UserError, match=r"there is no job 'zzz'; known jobs: fake$"):
        jobs.find("zzz")
    for number in range(9):
        jobs.folder(f"more{number}").joinpath("job.json").write_text("{}")
    with pytest.raises(UserError, match="known jobs: fake, more0, more1, more2, more3 and 5 that `fedscale driver sta"):
        jobs.find("zzz")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "a b", "-x", "x" * 101])
def test_job_names_are_file_names(state, name):
    with pytest.raises(UserError, match="job_name"):
        jobs.folder(name)


def test_name_is_held_by_one_at_a_time(state):
    with jobs.claim("fake"), pytest.raises(UserError, match="is running"), jobs.claim("fake"):
        pass
    with jobs.claim("fake"):
        pass


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"FEDSCALE_EXT_STATE": "{}/own", "XDG_STATE_HOME": "{}/xdg"}, "own"),
        ({"XDG_STATE_HOME": "{}/xdg"}, "xdg/fedscale_ext"),
        ({}, ".local/state/fedscale_ext"),
    ],
)
def test_state_directory(tmp_path, monkeypatch, env, folder):
    for name in ("FEDSCALE_EXT_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in env.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    assert jobs.state_dir() == tmp_path / folder
    assert (tmp_path / folder).is_dir()


def test_logs_follow_until_the_job_ends(state, fedscale, write_conf):
    from .conftest import wait_until

    first = fedscale("driver", "start", write_conf(), FAKE_AGGREGATOR="slowly")
    wait_until(lambda: jobs.read("fake"))
    code, out, _ = done(fedscale("driver", "logs", "fake", "-f"))
    assert code == 0
    assert done(first)[0] == 0
    assert out == (state / "jobs/fake/output.log").read_text()
    assert done(fedscale("driver", "logs", "fake"))[1] == out


def test_status_tells_the_round_that_a_killed_driver_did_not_hear_of(state, tmp_path):
    folder = write_job(tmp_path / "logs" / "killed" / "now", job_name="killed", rounds=10, finished=False)
    heard = {"round": 9, "rounds": 20}
    lost = dataclasses.replace(
        jobs.Job("killed", "conf", str(tmp_path), "now", [], Proc("driver", 1, 0.0), host=platform.node()),
        round=heard, accuracy=0.125, status="running",
    )  # fmt: skip
    jobs.write(lost)
    mean = load_job(folder).summary["accuracy"]["mean"]
    facts = job_status.facts(jobs.find("killed"))
    assert (facts["status"], facts["round"], facts["accuracy"]) == ("failed", "10/20", f"{100 * mean:.1f} %")
    assert job_status.row("killed")[1:4] == ["failed", "10/20", f"{100 * mean:.1f} %"]
    (folder / "metrics.jsonl").write_text("")
    assert job_status.row("killed")[1:4] == ["failed", "9/20", "12.5 %"]
    jobs.write(dataclasses.replace(lost, status="failed"))  # its driver heard of all that it could
    assert job_status.row("killed")[1:4] == ["failed", "9/20", "12.5 %"]


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda: jobs.write(job(Proc("driver", 5, 1.5))), "jobs/fake/job.json"),
        (lambda: sweep_records.write_conf("of", b""), "sweeps/of.yml"),
    ],
)
def test_a_record_that_a_full_disk_does_not_take_is_named_and_leaves_nothing(state, monkeypatch, write, what):
    monkeypatch.setattr(jobs.os, "fsync", full)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as error:
        write()
    assert error.value.filename == str(state / what)
    assert not [path for path in state.rglob("*") if path.is_file()]


def test_a_driver_whose_record_a_full_disk_does_not_take_says_so_once(state, monkeypatch, capsys):
    display = Display(Console(width=400), Console(stderr=True, width=400))
    run = Run(job(Proc("driver", 5, 1.5)), None, display, None, "")
    monkeypatch.setattr(jobs.os, "fsync", full)
    run._write_record()
    run._write_record()
    assert capsys.readouterr().err == (
        f"note: {state}/jobs/fake/job.json cannot be written (No space left on device): until it can, `fedscale driver "
        "status` shows an earlier state of the job\n"
    )


def test_a_start_whose_record_a_full_disk_does_not_take_leaves_no_folder(state, monkeypatch, write_conf, tmp_path):
    monkeypatch.setattr(jobs.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        start(str(write_conf()), [], Display(Console(), Console()), resume=False, resume_from=None, supervise=False)
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["logs"]
    assert not (state / "jobs/fake/token").exists()


@pytest.mark.parametrize("name", ["x" * 101, "-x", ".x", "", "a/b"])
def test_a_name_that_no_job_can_have_is_told_the_rule(name):
    jobs.check_name("_" + "x" * 99)
    with pytest.raises(UserError, match=r"must be a file name of 1 to 100 letters, .* begin with a letter"):
        jobs.check_name(name)
