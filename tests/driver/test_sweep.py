"""Sweeps with fake processes: in turn, stopped, continued, and with jobs that fail."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest
from cli.test_main import terminal

from fedscale_ext.config.job_config import from_argv, load_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs, sweep, sweeps
from fedscale_ext.driver.processes import Exit, Proc
from fedscale_ext.driver.sweep import Way
from fedscale_ext.driver.sweep_view import State, arm_rows
from fedscale_ext.driver.sweeps import Point
from fedscale_ext.driver.tables import console

from .conftest import ROOT, done, processes_of, wait_until

NOTE = (
    "note: aggregator_entry aggregator.py is not of this package: data, devices and models are checked when the job "
    "starts (all 2 jobs)\n"
)


def job(name):
    return jobs.read(name)


def run(fedscale, *words, **env):
    return done(fedscale("driver", "start", *words, **env))


def test_all_jobs_run_and_the_arms_are_compared(fedscale, state, write_conf):
    conf = write_conf(worker_ips=["localhost:[1]"])
    code, out, err = run(fedscale, conf, "--seeds", "0-1", "--grid", "rounds=13", "--at-once", "2")
    assert (code, err) == (0, NOTE + "note: [nothing] happened (all 2 jobs)\n")
    lines = out.splitlines()
    assert lines[0] == "sweep fake-sweep: 2 jobs, 2 at once"
    assert sum("finished, accuracy 50.0 %" in line for line in lines) == 2
    assert lines[-3].split() == ["fake-rounds_13", "2", "of", "2", "50.00", "±", "0.00"]
    assert lines[-1] == "compare: fedscale report fake-sweep"
    assert "\x1b" not in out
    assert {"--rounds=13", "--seed=1", "--job_name=fake-rounds_13-s1"} <= set(job("fake-rounds_13-s1").argv)
    assert [point.name for point in sweeps.read("fake-sweep").points] == sorted(jobs.names())
    wait_until(lambda: not processes_of(state))


class Told:
    """Stands for the processes of a sweep: keeps the commands, and each fails at once after a round was recorded."""

    commands: dict[str, list[str]]

    def __init__(self, log):
        self.inbox, self.tails, self._running = SimpleQueue(), {}, []

    def start(self, name, command, env):
        Told.commands[name] = command
        self.tails[name] = []
        self._running.append(name)
        if name == "fake-s0":
            folder = Path(sweeps.read("fake-sweep").runs[name])
            record = jobs.Job(name, "", str(folder.parents[2]), folder.name, [], Proc("driver", 0, 0.0))
            record.round = {"round": 3, "rounds": 12}
            jobs.write(record)

    def running(self):
        return list(self._running)

    def next(self, deadline):
        return Exit(self._running.pop(), 1)

    def stop(self, seconds):
        assert seconds == 3.0


def test_jobs_on_other_machines_run_in_turn_with_the_port_and_the_folder_of_the_configuration(
    state, write_conf, monkeypatch, capsys
):
    monkeypatch.setattr(sweep, "Processes", Told)
    conf = write_conf({"ps_port": 4711, "data_dir": "not/here"}, worker_ips=["10.0.0.9:[1]"])
    prepared = []
    way = Way("submit", lambda config: prepared.append(config.fedscale.job_name) or config, here=False, stop_s=3.0)

    def commands(at_once=None, resume=False):
        Told.commands = {}
        code = sweep.start(str(conf), [], console(), console(stderr=True), seeds="0-1", grid=[], at_once=at_once,
                           resume=resume, supervise=False, way=way)  # fmt: skip
        assert code == 1
        return {name: [*command[3:5], *command[6:]] for name, command in Told.commands.items()}

    first = commands()
    assert prepared == ["fake-s0", "fake-s1"]
    assert capsys.readouterr().out.startswith("sweep fake-sweep: 2 jobs, 1 at once\n")
    for seed in (0, 1):
        stamp = Path(sweeps.read("fake-sweep").runs[f"fake-s{seed}"]).name
        options = [f"--set=seed={seed}", f"--set=job_name=fake-s{seed}", f'--set=time_stamp="{stamp}"']
        assert first[f"fake-s{seed}"] == ["driver", "submit", *options]
    again = commands(at_once=2, resume=True)
    assert again["fake-s0"][-1] == "--resume" and "--resume" not in again["fake-s1"]  # its record tells of a round
    assert all("--set=ps_port=auto" in command for command in again.values())  # side by side


def test_a_sweep_says_once_what_none_of_its_jobs_reads(fedscale, state, write_conf):
    conf = write_conf({"moss.lr": 0.1, "fedtrans.beta": 0.1}, worker_ips=["localhost:[1]"])
    code, _, err = run(fedscale, conf, "--grid", "method=fedavg,fedtrans")
    idle = "note: moss.lr does nothing: the methods are fedavg, fedtrans (all 2 jobs)\n"
    assert (code, err) == (0, idle + NOTE + "note: [nothing] happened (all 2 jobs)\n")


def test_jobs_that_would_repeat_another_are_left_out_in_one_sentence(fedscale, state, write_conf):
    conf = write_conf({"moss.lr": 0.1}, worker_ips=["localhost:[1]"])
    code, out, _ = run(fedscale, conf, "--grid", "fedtrans.beta=0.1,0.2")
    lines = out.splitlines()
    assert code == 0 and lines[0] == "sweep fake-sweep: 1 job, 2 at once"
    assert lines[1] == ("1 of 2 jobs of the grid would repeat another one, as they do not read what differs, and are "
                        "left out: fake-beta_0.2 (as fake-beta_0.1)")  # fmt: skip
    assert jobs.names() == ["fake-beta_0.1"] == [point.name for point in sweeps.read("fake-sweep").points]


def test_bad_input_is_one_sentence_before_anything_starts(call, state, write_conf):
    conf = write_conf()
    for words, sentence in (
        (["--seeds", "x"], "--seeds x: write seeds as 0-4 or 1,5,7"),
        (["--grid", "rounds=3,0"], "job fake-rounds_0 of the sweep: "),
        (["--grid", "nonsense=1"], "unknown job_conf key 'nonsense'"),
        (["--seeds", "1,2", "--set", "seed=5"], "--set seed=5 and --seeds 1,2 both set seed; remove one of them"),
        (["--grid", "rounds=3,4", "--set", "rounds=5"], "--set rounds=5 and --grid rounds=3,4 both set rounds; "),
        (["--seeds", "0-1", "--resume-from", "3"], "--resume-from goes back in one job"),
        (["--at-once", "2"], "--at-once is for sweeps"),
    ):
        code, out, err = call("driver", "start", conf, *words)
        assert (code, out) == (2, "") and sentence in err and err.count("\n") == 1
    for words, sentence in (
        (["--at-once", "2"], "--at-once is for sweeps"),
        (["--seeds", "0-1", "--resume-from", "3"], "--resume-from goes back in one job"),
        (["--slurm", "--at-once", "2"], "--at-once is for sweeps"),
        (["--seeds", "0-1", "--slurm", "--resume-from", "3"], "--resume-from goes back in one job"),
        (["--seeds", "0-1", "--slurm", "--ray", "auto"], "--ray and --slurm are two ways to run a job"),
        (["--seeds", "0-1", "--set", "ps_ip=a b"], "job fake-s0 of the sweep: ps_ip names 'a b', which is no host"),
    ):
        code, out, err = call("driver", "submit", conf, *words)
        assert (code, out) == (2, "") and sentence in err and err.count("\n") == 1
    assert jobs.names() == []


def test_a_job_that_fails_fails_alone(fedscale, state, write_conf, tmp_path):
    conf = write_conf()
    env = {"FAKE_AGGREGATOR": "die once", "FAKE_MARKER": str(tmp_path / "marker"), "FAKE_EXECUTOR": "stay"}
    code, out, err = run(fedscale, conf, "--seeds", "0,1", "--at-once", "1", **env)
    assert code == 1
    assert err.startswith(f"{NOTE}fake-s0: failed aggregator ended with exit code 1; all output is in")
    assert "fake-s1: finished" in out and "fake  1 of 2" in out
    assert (job("fake-s0").status, job("fake-s1").status) == ("failed", "finished")


def test_an_interrupt_stops_all_and_resume_goes_on(fedscale, state, write_conf):
    words = [write_conf(), "--seeds", "0-1", "--at-once", "1"]
    process = fedscale("driver", "start", *words, FAKE_AGGREGATOR="wait", FAKE_EXECUTOR="wait")
    wait_until(lambda: (record := job("fake-s0")) and record.round)
    process.send_signal(signal.SIGINT)
    code, out, err = done(process)
    assert code == 130
    assert err == f"{NOTE}fedscale: the sweep was stopped; the same command with --resume continues it\n"
    assert not processes_of(state)
    assert job("fake-s0").status == "stopped" and job("fake-s1") is None
    (job("fake-s0").log_dir / "checkpoints").mkdir(parents=True)
    (job("fake-s0").log_dir / "checkpoints" / "checkpoint-000003.safetensors").touch()
    code, out, err = run(fedscale, *words, "--resume")
    assert (code, err) == (0, NOTE + "note: [nothing] happened (all 2 jobs)\n")
    assert "fake-s0: goes on from its checkpoint" in out and "fake-s1: starts" in out
    assert "--resume=True" in job("fake-s0").argv and "--resume=True" not in job("fake-s1").argv
    assert sweeps.read("fake-sweep").runs == {name: str(job(name).log_dir) for name in ("fake-s0", "fake-s1")}


@pytest.mark.parametrize("again", [False, True], ids=["without a record", "with the record of an earlier one"])
def test_a_sweep_whose_jobs_are_still_checked_is_stopped(fedscale, call, state, write_conf, again):
    conf = write_conf(worker_ips=["localhost:[1]"])
    if again:
        assert run(fedscale, conf, "--seeds", "0-1")[0] == 0
    code = (
        "import sys, time\n"
        "from fedscale_ext.cli import main\n"
        "from fedscale_ext.driver import sweep\n"
        "sweep.check_jobs = lambda *_: print('checking', flush=True) or time.sleep(600)\n"
        f"sys.argv = ['fedscale', 'driver', 'start', {str(conf)!r}, '--seeds', '0-1']\n"
        "main()"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "checking\n"
            assert call("driver", "stop", "fake-sweep") == (0, "sweep fake-sweep is stopped\n", "")
            assert process.wait(10) != 0
        finally:
            process.kill()
    code, out, err = call("driver", "stop", "fake-sweep")
    if again:
        assert (code, out, err) == (0, "sweep fake-sweep is not running\n", "")
    else:
        assert code == 2 and "fake-sweep" in err


def test_a_job_that_finished_while_the_sweep_was_stopped_counts(fedscale, state, write_conf, tmp_path):
    words = [write_conf(), "--seeds", "0-1", "--at-once", "1"]
    process = fedscale("driver", "start", *words, FAKE_AGGREGATOR="plotting", FAKE_MARKER=str(tmp_path / "marker"))
    wait_until(lambda: (tmp_path / "marker.trained").exists() and (record := job("fake-s0")) and record.round)
    job("fake-s0").log_dir.mkdir(parents=True, exist_ok=True)
    (job("fake-s0").log_dir / "summary.json").write_text("{}")  # only pictures are missing
    process.send_signal(signal.SIGINT)
    code, out, err = done(process)
    assert code == 130 and job("fake-s0").status == "finished"
    assert "fake  1 of 2" in out and "fake-s0: finished" in out and "was stopped" in err


def test_jobs_that_a_resumed_sweep_leaves_out_are_told_and_stay_in_its_record(fedscale, state, write_conf):
    conf = write_conf({"rounds": 12}, worker_ips=["localhost:[1]"])
    assert run(fedscale, conf, "--grid", "batch_size=5,6")[0] == 0
    before = sweeps.read("fake-sweep")
    code, out, err = run(fedscale, conf, "--grid", "batch_size=6,7", "--resume")
    assert code == 0, err
    assert "1 job of the sweep that these options do not name is left as before: fake-batch_size_5" in out
    assert [line.split()[0] for line in out.splitlines() if "of 1 " in line] == [
        "fake-batch_size_6",
        "fake-batch_size_7",
    ]
    after = sweeps.read("fake-sweep")
    assert set(after.runs) == {f"fake-batch_size_{size}" for size in (5, 6, 7)} == {p.name for p in after.points}
    assert after.runs["fake-batch_size_5"] == before.runs["fake-batch_size_5"]
    assert after.grid == {"batch_size": ["5", "6", "7"]}


def test_resume_continues_runs_of_the_sweep_alone(fedscale, state, write_conf, tmp_path):
    conf = write_conf({"rounds": 12})
    older = tmp_path / "out" / "logs" / "fake-s1" / "older"
    checkpoint(older)
    words = [conf, "--seeds", "0-1", "--at-once", "1"]
    env = {"FAKE_AGGREGATOR": "die once", "FAKE_MARKER": str(tmp_path / "marker"), "FAKE_EXECUTOR": "stay"}
    assert run(fedscale, *words, **env)[0] == 1  # the first job dies without a checkpoint
    header("fake-s1", learning_rate=0.05)
    failed = job("fake-s0").log_dir
    checkpoint(tmp_path / "out" / "logs" / "fake-s0" / "older")
    code, out, _ = run(fedscale, *words, "--resume")
    assert code == 0 and "1 done before" in out
    assert "fake-s0: starts anew, for its run in this sweep has no checkpoint" in out
    assert "--resume=True" not in job("fake-s0").argv
    runs = sweeps.read("fake-sweep").runs
    assert runs["fake-s0"] == str(job("fake-s0").log_dir) and job("fake-s0").log_dir.name != "older"
    assert failed.parent == job("fake-s0").log_dir.parent
    # a start without --resume gives every job a run of its own
    assert run(fedscale, *words[:1], "--seeds", "0", "--set=time_stamp=new")[0] == 0
    assert sweeps.read("fake-sweep").runs == {"fake-s0": str(failed.with_name("new"))}


def test_jobs_use_the_configuration_that_was_checked_whatever_the_file_says_by_then(fedscale, state, write_conf):
    conf = write_conf({"learning_rate": 0.05})
    process = fedscale("driver", "start", conf, "--seeds", "0-1", "--at-once", "1", FAKE_AGGREGATOR="slowly")
    wait_until(lambda: (record := job("fake-s0")) and record.round)
    write_conf({"learning_rate": 0.9})
    code, _, err = done(process)
    assert code == 0, err
    assert "--learning_rate=0.05" in job("fake-s0").argv and "--learning_rate=0.05" in job("fake-s1").argv
    assert job("fake-s1").conf == str(conf) == sweeps.read("fake-sweep").conf  # what a person would start again
    assert sweeps.names() == ["fake-sweep"] and sweeps.conf_path("fake-sweep").stat().st_mode & 0o777 == 0o600


def test_a_message_of_a_sweeps_job_names_the_users_file(tmp_path, monkeypatch):
    copy = tmp_path / "copy.yml"
    copy.write_text("job_conf:\n- nonsense: 1\n")
    monkeypatch.setattr(sweep, "_wait_for_end", lambda: None)
    monkeypatch.setenv(sweep.VARIABLE, "/home/user/job.yml")
    file = sweep.stop_with_sweep(str(copy))
    with pytest.raises(UserError, match=r"/home/user/job\.yml: unknown job_conf key 'nonsense'"):
        load_config(file)
    assert sweep.stop_with_sweep(str(copy)) is None  # and no sweep started it


def test_a_job_does_not_start_on_a_file_that_was_exchanged_while_the_sweep_ran(fedscale, state, write_conf, tmp_path):
    boards = tmp_path / "boards.csv"
    boards.write_text("one")
    conf = write_conf({"device_conf_file": str(boards)})
    process = fedscale("driver", "start", conf, "--seeds", "0-1", "--at-once", "1", FAKE_AGGREGATOR="slowly")
    wait_until(lambda: (record := job("fake-s0")) and record.round)
    boards.write_text("two")
    code, out, err = done(process)
    assert code == 1 and "fake  1 of 2" in out and job("fake-s1") is None
    sentence = f"device_conf_file {boards} has other contents than when the sweep began; restore it, and continue"
    assert f"fake-s1: failed {sentence} the sweep with --resume" in err


def test_a_job_that_read_another_file_counts_as_failed(fedscale, state, write_conf, tmp_path):
    boards = tmp_path / "boards.csv"
    boards.write_text("one")
    conf = write_conf({"device_conf_file": str(boards)})
    process = fedscale("driver", "start", conf, "--seeds", "0", FAKE_AGGREGATOR="slowly")
    wait_until(lambda: (record := job("fake-s0")) and record.round)
    digests = {"device_conf_file": {str(boards): "other"}}
    job("fake-s0").log_dir.mkdir(parents=True, exist_ok=True)
    (job("fake-s0").log_dir / "header.json").write_text(json.dumps({"config": {}, "named_files": digests}))
    code, out, err = done(process)
    assert code == 1 and "fake  0 of 1" in out and "has other contents than when the sweep began" in err


def test_jobs_that_run_side_by_side_are_judged_each_by_the_data_that_it_opened(write_conf):
    names = ["a", "b", "c", "other"]
    configs = [load_config(write_conf(), [f"job_name={name}", f"data_seed={2 if name == 'other' else 1}"])
               for name in names]  # fmt: skip
    for known in ({"a": "11", "b": "11"}, {}):  # from a check, and where none could open the data
        data = sweep._SweepData(configs, known)
        assert data.fault("a", "11") is None and data.exchanged("c") is None
        sentence = data.fault("b", "22")
        assert sentence is not None and " holds other samples or clients than when the sweep began; " in sentence
        assert data.fault("a", "11") is None  # it opened what there was
        assert data.exchanged("c") == sentence and data.exchanged("other") is None
        assert data.fault("other", "22") is None


def test_a_job_on_other_data_is_ended_and_an_older_header_is_none_of_its(fedscale, state, write_conf, tmp_path):
    conf = write_conf({"rounds": 12, "time_stamp": "now"})
    assert run(fedscale, conf, "--seeds", "0")[0] == 0
    header("fake-s0", digest="11")
    older = (
        tmp_path / "out" / "logs" / "fake-s1" / "now" / "header.json"
    )  # of an earlier sweep, which this one replaces
    older.parent.mkdir(parents=True)
    older.write_text(json.dumps({"config": {}, "data": {"digest": "33"}}))
    os.utime(older, (1, 1))
    process = fedscale("driver", "start", conf, "--seeds", "0-2", "--resume", "--at-once", "1", FAKE_AGGREGATOR="wait")
    wait_until(lambda: (record := job("fake-s1")) and record.round)
    header("fake-s1", digest="22")
    code, out, err = done(process)
    assert code == 1 and "fake  1 of 3" in out
    assert "fake-s1: failed data_dir" in err and "fake-s2: failed data_dir" in err and job("fake-s2") is None
    assert list(sweeps.read("fake-sweep").runs) == ["fake-s0"]  # --resume starts the others anew


def test_a_record_without_runs_takes_the_last_run_of_each_job(fedscale, state, write_conf):
    assert run(fedscale, write_conf(), "--seeds", "0")[0] == 0
    path = sweeps.folder() / "fake-sweep.json"
    record = json.loads(path.read_text())
    del record["runs"]
    path.write_text(json.dumps(record))
    assert sweeps.read("fake-sweep").runs == {"fake-s0": str(job("fake-s0").log_dir)}


def checkpoint(folder):
    """What the fake aggregator does not write of a job that is half-way."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "checkpoint-000003.safetensors").touch()


def header(name, digest=None, **config):
    """What the fake aggregator does not write of a job that has begun: its settings, with some that differ, and the
    digest of its data."""
    record = job(name)
    record.log_dir.mkdir(parents=True, exist_ok=True)
    settings = {**from_argv(record.argv[2:]).echo(), **config}
    (record.log_dir / "header.json").write_text(
        json.dumps({"config": settings, "data": {"digest": digest}}, default=str)
    )


def test_resume_leaves_what_has_finished_unless_it_was_another_job(fedscale, call, state, write_conf):
    conf = write_conf({"rounds": 12})
    assert run(fedscale, conf, "--seeds", "0")[0] == 0
    header("fake-s0", learning_rate=0.05, **{"fedmd.groups": [1, 2]})
    before = job("fake-s0").started
    code, out, _ = call("driver", "start", conf, "--seeds", "0", "--resume")
    assert code == 0 and "1 done before" in out and "fake  1 of 1    50.00" in out
    assert job("fake-s0").started == before
    code, _, err = call("driver", "start", conf, "--seeds", "0", "--resume", "--set", "learning_rate=0.3")
    assert code == 2 and "job fake-s0 ran with other settings: learning_rate was 0.05 and is 0.3; resume the" in err
    sweeps_before = sweeps.read("fake-sweep")
    record = job("fake-s0")
    record.status = "stopped"
    jobs.write(record)
    checkpoint(record.log_dir)
    code, out, err = call("driver", "start", conf, "--seeds", "0,1", "--resume", "--set", "learning_rate=0.3")
    assert code == 2 and out == "" and "job fake-s0 ran with other settings" in err  # half-way, too
    assert sweeps.read("fake-sweep") == sweeps_before and job("fake-s1") is None


def test_a_sweep_with_fewer_rounds_than_a_job_has_done_starts_nothing(fedscale, call, state, write_conf):
    conf = write_conf({"rounds": 12})
    assert run(fedscale, conf, "--seeds", "0")[0] == 0
    header("fake-s0")
    before = sweeps.read("fake-sweep")
    fewer = [conf, "--seeds", "0-1", "--resume", "--set=rounds=8"]
    sentence = "fedscale: job fake-s0 has done {} rounds already, more than the 8 that are asked for; raise rounds, or "
    for status, rounds in (("finished", 12), ("stopped", 11)):
        record = job("fake-s0")
        record.status, record.round = status, {"round": rounds, "rounds": 12}
        jobs.write(record)
        code, out, err = call("driver", "start", *fewer)
        assert (code, out) == (2, "") and err == sentence.format(rounds) + "start the sweep anew without --resume\n"
        assert sweeps.read("fake-sweep") == before and jobs.names() == ["fake-s0"]
        if status == "finished":
            checkpoint(record.log_dir)
    assert call("driver", "start", conf, "--seeds", "0", "--resume", "--set=rounds=13")[0] == 0  # more may be asked for


def test_a_sweep_that_runs_can_be_seen_and_stopped_by_name_and_not_started_twice(fedscale, call, state, write_conf):
    conf = write_conf()
    words = [conf, "--seeds", "0-1", "--at-once", "1"]
    process = fedscale("driver", "start", *words, FAKE_AGGREGATOR="wait", FAKE_EXECUTOR="wait")
    wait_until(lambda: (record := job("fake-s0")) and record.round)
    code, _, err = call("driver", "start", *words)
    assert code == 2 and "sweep fake-sweep is running" in err
    _, out, _ = call("driver", "status", "fake-sweep")
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["fake-s0", "running"], ["fake-s1", "not"]]
    assert call("driver", "stop", "fake-sweep")[1] == "sweep fake-sweep is stopped\n"
    assert done(process)[0] == 130
    assert not processes_of(state)
    assert call("driver", "stop", "fake-sweep")[1] == "sweep fake-sweep is not running\n"


def test_jobs_end_when_the_sweep_is_killed(fedscale, state, write_conf):
    process = fedscale("driver", "start", write_conf(), "--seeds", "0", FAKE_AGGREGATOR="wait", FAKE_EXECUTOR="wait")
    wait_until(lambda: (record := job("fake-s0")) and record.round)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not processes_of(state))
    assert job("fake-s0").status != "running"


def test_a_job_that_was_stopped_after_its_last_round_counts_with_its_accuracy(fedscale, state, write_conf):
    words = [write_conf({"rounds": 12}), "--seeds", "0"]
    code, out, _ = run(fedscale, *words, FAKE_AGGREGATOR="done before")
    assert code == 0 and "fake  1 of 1    50.00" in out
    assert job("fake-s0").complete(12)


def test_an_arms_accuracy_says_of_how_many_jobs_it_is():
    points = tuple(Point(f"{arm}-s{seed}", arm, seed, ()) for arm in ("both", "one", "none") for seed in (0, 1))
    states = {point.name: State("finished", accuracy=0.25) for point in points}
    for name in ("one-s1", "none-s0", "none-s1"):
        states[name].accuracy = None
    rows = arm_rows(sweeps.Sweep("a-sweep", "conf", (), {}, points, Proc("sweep", 1, 0.0)), states)[1]
    assert rows == [["both", "2 of 2", "25.00 ± 0.00"], ["one", "2 of 2", "25.00 (1 of 2)"], ["none", "2 of 2", "–"]]


def test_a_terminal_shows_one_view_of_all_jobs(state, write_conf):
    words = ["driver", "start", write_conf(), "--seeds", "0-1", "--at-once", "2"]
    code, out = terminal(words, FAKE_AGGREGATOR="slowly", NO_COLOR="1")
    assert code == 0
    assert "━" in out and "of 2 jobs ended" in out
    assert "fake-s0: finished, accuracy 50.0 %" in out and "compare: fedscale report fake-sweep" in out
    assert "\x1b[3" not in out
    assert out.count("\x1b[?25l") == out.count("\x1b[?25h")  # the cursor is back
