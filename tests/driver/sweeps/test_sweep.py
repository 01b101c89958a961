"""Sweeps with fake processes: started, in turn or side by side, with jobs that fail, and stopped."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import SimpleQueue

import pytest
from cli.test_main import terminal

from fedscale_ext.config.job_config import load_config
from fedscale_ext.driver import jobs
from fedscale_ext.driver.processes import Exit, Proc
from fedscale_ext.driver.sweeps import sweep, sweep_records
from fedscale_ext.driver.sweeps.sweep import Way
from fedscale_ext.driver.tables import console
from tests.driver.conftest import ROOT, done, processes_of, wait_until
from tests.driver.fake_sweeps import NOTE, job, run


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
    assert [point.name for point in sweep_records.read("fake-sweep").points] == sorted(jobs.names())
    wait_until(lambda: not processes_of(state))


def test_a_jobs_folder_may_have_any_signs(tmp_path):
    settings = sweep._run_settings(tmp_path / "😀" / "logs" / "fake-s0" / "1128_132854", here=True)
    fedscale = load_config("quickstart", settings).fedscale
    assert (fedscale.log_path, fedscale.time_stamp) == (str(tmp_path / "😀"), "1128_132854")


class FailingProcesses:
    """Stands for the processes of a sweep: keeps the commands, and each fails at once after a round was recorded."""

    commands: dict[str, list[str]]

    def __init__(self, log):
        self.inbox, self.tails, self._running = SimpleQueue(), {}, []

    def start(self, name, command, env):
        FailingProcesses.commands[name] = command
        self.tails[name] = []
        self._running.append(name)
        if name == "fake-s0":
            folder = Path(sweep_records.read("fake-sweep").runs[name])
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
    monkeypatch.setattr(sweep, "Processes", FailingProcesses)
    conf = write_conf({"ps_port": 4711, "data_dir": "not/here"}, worker_ips=["10.0.0.9:[1]"])
    prepared = []
    way = Way("submit", lambda config: prepared.append(config.fedscale.job_name) or config, here=False, stop_s=3.0)

    def commands(at_once=None, resume=False):
        FailingProcesses.commands = {}
        code = sweep.start(str(conf), [], console(), console(stderr=True), seeds="0-1", grid=[], at_once=at_once,
                           resume=resume, supervise=False, way=way)  # fmt: skip
        assert code == 1
        return {name: [*command[3:5], *command[6:]] for name, command in FailingProcesses.commands.items()}

    first = commands()
    assert prepared == ["fake-s0", "fake-s1"]
    assert capsys.readouterr().out.startswith("sweep fake-sweep: 2 jobs, 1 at once\n")
    for seed in (0, 1):
        stamp = Path(sweep_records.read("fake-sweep").runs[f"fake-s{seed}"]).name
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
    assert jobs.names() == ["fake-beta_0.1"] == [point.name for point in sweep_records.read("fake-sweep").points]


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


def test_a_job_whose_run_a_full_disk_does_not_take_fails_alone(state, write_conf, monkeypatch, capfd):
    full, write = [False, False, True, False], sweep_records.write  # the sweep, and its three jobs

    def refuse_one(record):
        if full.pop(0):
            raise OSError(errno.EDQUOT, "Disk quota exceeded", "fake-sweep.json")
        write(record)

    monkeypatch.setattr(sweep_records, "write", refuse_one)
    code = sweep.start(str(write_conf()), [], console(), console(stderr=True), seeds="0-2", grid=[], at_once=2,
                       resume=False, supervise=False)  # fmt: skip
    out, err = capfd.readouterr()
    assert code == 1 and "fake  2 of 3" in out
    sentence = (
        "fake-s1: failed fake-sweep.json cannot be written (Disk quota exceeded); continue the sweep with --resume"
    )
    assert sentence in err
    assert set(sweep_records.read("fake-sweep").runs) == {"fake-s0", "fake-s2"}


def test_a_job_counts_though_its_earlier_record_is_of_a_later_time(fedscale, state, write_conf):
    jobs.write(jobs.Job("fake-s0", "", "/tmp", "t", [], Proc("driver", 0, 0.0), started=time.time() + 3600))
    code, out, _ = run(fedscale, write_conf(), "--seeds", "0")
    assert code == 0 and "fake  1 of 1    50.00" in out


@pytest.mark.parametrize("again", [False, True], ids=["without a record", "with the record of an earlier one"])
def test_a_sweep_whose_jobs_are_still_checked_is_stopped(fedscale, call, state, write_conf, again):
    conf = write_conf(worker_ips=["localhost:[1]"])
    if again:
        assert run(fedscale, conf, "--seeds", "0-1")[0] == 0
    code = (
        "import sys, time\n"
        "from fedscale_ext.cli.main import main\n"
        "from fedscale_ext.driver.sweeps import sweep\n"
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


def test_a_terminal_shows_one_view_of_all_jobs(state, write_conf):
    words = ["driver", "start", write_conf(), "--seeds", "0-1", "--at-once", "2"]
    code, out = terminal(words, FAKE_AGGREGATOR="slowly", NO_COLOR="1")
    assert code == 0
    assert "━" in out and "of 2 jobs ended" in out
    assert "fake-s0: finished, accuracy 50.0 %" in out and "compare: fedscale report fake-sweep" in out
    assert "\x1b[3" not in out
    assert out.count("\x1b[?25l") == out.count("\x1b[?25h")  # the cursor is back
