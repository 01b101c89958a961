"""The driver with fake processes: every way a job can end, and that nothing is left of it."""

import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from fedscale_ext.config.job_config import load_config
from fedscale_ext.driver import jobs, processes
from fedscale_ext.driver.progress import Display
from fedscale_ext.driver.run import start
from fedscale_ext.util.token import new_token

from .conftest import ROOT, done, heard, processes_of, wait_until


def record(state):
    return json.loads((state / "jobs/fake/job.json").read_text())


def started(state):
    """True when all three processes of the fake job are recorded and a round was heard of."""
    path = state / "jobs/fake/job.json"
    return path.exists() and len(record(state)["children"]) == 3 and record(state)["round"]


def assert_nothing_left(state):
    wait_until(lambda: not processes_of(state))


def test_normal_end(fedscale, state, write_conf, tmp_path):
    code, out, err = done(fedscale("driver", "start", write_conf()))
    assert code == 0, err
    lines = out.splitlines()
    assert "data        generated: fake, 4 clients" in lines
    assert "round 3: m1 from m0, widened cell 2" in lines
    rounds = [line.split(",")[0] for line in lines if line.startswith("round ") and "/" in line]
    assert rounds == ["round 5/12", "round 10/12", "round 12/12"]
    assert "accuracy 50.0 %, virtual clock 10 min 10 s" in out
    assert "accuracy  50.0 %" in lines
    assert "plot         /tmp/plot.png" in lines
    assert f"log_dir      {tmp_path}/out/logs/fake/{record(state)['time_stamp']}" in lines
    assert "tensorboard  tensorboard --logdir '/tmp/a b'" in lines
    assert err == "note: [nothing] happened\n"
    assert "\x1b" not in out + err
    job = record(state)
    assert (job["status"], job["round"]["round"], job["accuracy"]) == ("finished", 12, 0.5)
    log = (state / "jobs/fake/output.log").read_text()
    assert "aggregator | plain words" in log
    assert "executor 2 | executor says --this_rank=2 threads=1" in log
    assert_nothing_left(state)


def test_executors_get_their_gpu_and_the_job_its_place(fedscale, state, write_conf, tmp_path):
    done(fedscale("driver", "start", write_conf(worker_ips=["localhost:[1,1]"]), "--set", "rounds=7"))
    argv = record(state)["argv"]
    assert {"--this_rank=0", "--num_executors=2", "--executor_configs=localhost:[1,1]", "--rounds=7"} <= set(argv)
    assert f"--log_path={tmp_path}/out" in argv
    assert any(word.startswith("--time_stamp=") for word in argv)
    assert not any(word.startswith("--resume") for word in argv)


@pytest.mark.parametrize("more", [[], ["--supervise"]])
def test_a_job_that_nothing_can_help_has_failed_and_is_not_started_again(fedscale, state, write_conf, more):
    conf = write_conf()
    code, _, err = done(fedscale("driver", "start", conf, *more, FAKE_AGGREGATOR="left alone", FAKE_EXECUTOR="wait"))
    last = err.splitlines()[-1]
    assert code == 1 and last.startswith("fedscale: no executor is left; all output is in ")
    assert last.endswith(f"continue the job with `fedscale driver start {conf} --resume`")
    assert "started again" not in err and record(state)["status"] == "failed"
    assert_nothing_left(state)


def test_a_job_without_executors_says_how_to_join_it(fedscale, state, write_conf, tmp_path):
    token = new_token(tmp_path / "token")
    words = [write_conf({"tls_ca": "ca.pem"}, worker_ips=[]), "--set", f"token_file={os.path.relpath(token, ROOT)}"]
    err = done(fedscale("driver", "start", *words, FAKE_AGGREGATOR="die"))[2]
    said = err.splitlines()[0]  # with an absolute path, which is found from any folder
    assert said.startswith("note: the job has no executors; any process joins by: fedscale executor join 127.0.0.1:")
    file, authority = said.split(" --token-file ")[1].split(" --tls-ca ")
    assert Path(file).is_absolute() and os.path.normpath(file) == str(token)
    assert authority == f"{ROOT}/ca.pem"


@pytest.mark.parametrize(
    ("env", "code", "sentence"),
    [
        ({"FAKE_AGGREGATOR": "die", "FAKE_EXECUTOR": "wait"}, 1, "aggregator ended with exit code 1"),
        ({"FAKE_AGGREGATOR": "no summary", "FAKE_EXECUTOR": "wait"}, 1, "aggregator ended without a summary"),
    ],
)
def test_a_process_that_dies_ends_the_job(fedscale, state, write_conf, env, code, sentence):
    exit_code, _, err = done(fedscale("driver", "start", write_conf(), **env))
    assert exit_code == code
    last = err.splitlines()[-1]  # there is no checkpoint that --resume could continue from
    assert last == f"fedscale: {sentence}; all output is in {state}/jobs/fake/output.log"
    assert record(state)["status"] == "failed"
    assert sentence in record(state)["reason"]
    assert ("breaks" in err) == (env["FAKE_AGGREGATOR"] == "die")
    assert_nothing_left(state)


def test_the_job_goes_on_without_an_executor_that_was_killed(fedscale, state, write_conf):
    process = fedscale("driver", "start", write_conf(), FAKE_AGGREGATOR="wait", FAKE_EXECUTOR="wait")
    wait_until(lambda: started(state))
    children = {child["name"]: child["pid"] for child in record(state)["children"]}
    os.kill(children["executor 1"], signal.SIGKILL)
    heard(process, "note: executor 1 was ended by SIGKILL; the job goes on without it\n")
    os.kill(children["executor 2"], signal.SIGKILL)
    code, _, err = done(process)
    assert code == 1
    assert "fedscale: executor 2 was ended by SIGKILL; all output is in" in err
    assert_nothing_left(state)


def test_the_job_goes_on_with_executors_that_joined_when_its_own_are_gone(fedscale, state, write_conf):
    conf = write_conf(worker_ips=["localhost:[1]"])
    process = fedscale("driver", "start", conf, FAKE_AGGREGATOR="wait", FAKE_EXECUTOR="wait", FAKE_JOINED="1")
    heard(process, "note: executor 3 joined from there\n")
    wait_until(lambda: len(record(state)["children"]) == 2 and record(state)["round"])
    children = {child["name"]: child["pid"] for child in record(state)["children"]}
    os.kill(children["executor 1"], signal.SIGKILL)
    heard(process, "note: executor 1 was ended by SIGKILL; the job goes on without it\n")
    process.send_signal(signal.SIGINT)
    assert done(process)[0] == 130
    assert_nothing_left(state)


def test_a_job_that_ends_without_one_of_its_executors_has_finished(fedscale, state, write_conf, tmp_path):
    env = {"FAKE_AGGREGATOR": "slowly", "FAKE_EXECUTOR": "die once", "FAKE_MARKER": str(tmp_path / "marker")}
    code, _, err = done(fedscale("driver", "start", write_conf(), **env))
    assert code == 0
    assert "note: executor 2 ended with exit code 3; the job goes on without it" in err
    assert record(state)["status"] == "finished"


def test_a_killed_aggregator_with_a_checkpoint_can_be_resumed(fedscale, state, write_conf):
    conf = write_conf()
    env = {"FAKE_AGGREGATOR": "kill with checkpoint", "FAKE_EXECUTOR": "wait"}
    code, _, err = done(fedscale("driver", "start", conf, **env))
    assert code == 1
    assert err.splitlines()[-1] == (
        f"fedscale: aggregator was ended by SIGKILL; all output is in {state}/jobs/fake/output.log; "
        f"continue the job with `fedscale driver start {conf} --resume`"
    )
    assert_nothing_left(state)
    _, _, err = done(fedscale("driver", "start", conf, "--set", "job_name=other", "--set", "rounds=7", **env))
    command = f"fedscale driver start {conf} --set job_name=other --set rounds=7 --resume"
    assert err.splitlines()[-1].endswith(f"/jobs/other/output.log; continue the job with `{command}`")


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (
            {"FAKE_AGGREGATOR": "bad input", "FAKE_EXECUTOR": "wait"},
            "num_participants 9 is above the 4 clients; lower it",
        ),
        ({"FAKE_AGGREGATOR": "wait", "FAKE_EXECUTOR": "bad input"}, "no data at nowhere; make some"),
    ],
)
def test_bad_input_found_by_a_process_is_one_sentence(fedscale, state, write_conf, env, sentence):
    code, _, err = done(fedscale("driver", "start", write_conf(), **env))
    assert (code, err) == (2, f"fedscale: {sentence}\n")
    assert_nothing_left(state)


def test_a_refused_start_leaves_the_last_runs_record_and_output(fedscale, state, write_conf):
    assert done(fedscale("driver", "start", write_conf()))[0] == 0
    before, log = record(state), (state / "jobs/fake/output.log").read_text()
    for options in ((), ("--resume", "--set=rounds=20")):
        assert done(fedscale("driver", "start", write_conf(), *options, FAKE_AGGREGATOR="refuse"))[0] == 2
        assert record(state) == before
        assert log in (state / "jobs/fake/output.log").read_text()
    assert done(fedscale("driver", "start", write_conf()))[0] == 0
    assert record(state)["started"] > before["started"]
    assert {path.name for path in (state / "jobs/fake").iterdir()} == {"job.json", "output.log", "lock"}


@pytest.mark.parametrize("key", ["model", "capacity_model"])
def test_a_models_file_that_is_not_there_is_missed_before_anything_starts(fedscale, state, write_conf, tmp_path, key):
    code, _, err = done(fedscale("driver", "start", write_conf(), "--set", f"{key}={tmp_path}/m3.json"))
    assert (code, err) == (2, f"fedscale: {key} names the file {tmp_path}/m3.json, which does not exist\n")
    assert not (tmp_path / "out").exists()


def test_error_of_an_executor_after_the_summary_is_too_late(fedscale, state, write_conf):
    code, out, err = done(fedscale("driver", "start", write_conf(), FAKE_EXECUTOR="late error"))
    assert code == 0, err
    assert "accuracy  50.0 %" in out
    assert record(state)["status"] == "finished"


def test_a_job_with_a_summary_is_finished_though_its_aggregator_does_not_leave(state, write_conf, monkeypatch, capfd):
    monkeypatch.setattr("fedscale_ext.driver.run._LEAVE_S", 0.5)
    monkeypatch.setenv("FAKE_AGGREGATOR", "slow end")
    display = Display(Console(width=400), Console(stderr=True, width=400))
    code = start(str(write_conf()), [], display, resume=False, resume_from=None, supervise=False)
    out, err = capfd.readouterr()
    assert code == 0 and "accuracy  50.0 %" in out
    # executors that begin late may still be there
    assert re.search(r"^note: aggregator(, executor \d)* did not leave within 0\.5 s of the summary: ended$", err, re.M)
    assert record(state)["status"] == "finished"


@pytest.mark.parametrize(
    ("number", "checkpoint", "how"),
    [
        (signal.SIGINT, True, "--resume continues it from its last checkpoint"),
        (signal.SIGTERM, False, "it has no checkpoint yet: start it anew"),
    ],
)
def test_interrupt_leaves_nothing(fedscale, state, write_conf, number, checkpoint, how):
    process = fedscale("driver", "start", write_conf(), FAKE_AGGREGATOR="grandchild", FAKE_EXECUTOR="wait")
    wait_until(lambda: started(state))
    wait_until(lambda: len(processes_of(state)) == 5)  # driver, aggregator, grandchild, two executors
    if checkpoint:
        folder = Path(record(state)["log_path"], "logs", "fake", record(state)["time_stamp"], "checkpoints")
        folder.mkdir(parents=True)
        (folder / "checkpoint-000001.safetensors").touch()
    process.send_signal(number)
    code, _, err = done(process)
    assert code == 130
    assert not processes_of(state)
    assert err == f"fedscale: job fake was stopped; {how}\n"
    assert record(state)["status"] == "stopped"


def test_interrupt_of_a_job_whose_results_are_written_says_that_it_is_done(fedscale, state, write_conf):
    process = fedscale("driver", "start", write_conf(), FAKE_AGGREGATOR="plotting", FAKE_EXECUTOR="wait")
    wait_until(lambda: started(state))
    results = Path(record(state)["log_path"], "logs", "fake", record(state)["time_stamp"])
    wait_until((results / "summary.json").is_file)
    process.send_signal(signal.SIGINT)
    code, _, err = done(process)
    assert code == 0
    assert err.splitlines()[-1] == f"note: job fake is done, results are in {results}; `fedscale report fake` draws it"
    assert record(state)["status"] == "finished" and not processes_of(state)


def test_interrupt_ends_a_process_that_ignores_it(fedscale, state, write_conf):
    process = fedscale("driver", "start", write_conf(), FAKE_AGGREGATOR="deaf", FAKE_EXECUTOR="wait")
    wait_until(lambda: started(state))
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert done(process)[0] == 130
    assert time.monotonic() - began > 2.5  # politely first
    assert not processes_of(state)


def test_second_interrupt_does_not_wait(tmp_path):
    ready = tmp_path / "ready"
    deaf = f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w'); time.sleep(1e6)"
    with (tmp_path / "log").open("w") as log:
        running = processes.Processes(log)
        running.start("deaf", [sys.executable, "-c", deaf], os.environ)
        wait_until(ready.exists)
        running.inbox.put(processes.Interrupt(signal.SIGINT))
        running.stop(1e6)
        assert not running.running()


def test_killed_driver_takes_its_processes_along_and_leaves_the_name_free(fedscale, state, write_conf):
    process = fedscale("driver", "start", write_conf(), FAKE_AGGREGATOR="wait", FAKE_EXECUTOR="wait")
    wait_until(lambda: started(state))
    process.kill()
    process.wait()
    assert_nothing_left(state)
    assert record(state)["status"] == "running"  # nobody could write otherwise
    _, out, _ = done(fedscale("driver", "status", "fake"))
    assert "status         failed\nreason         its driver is gone" in out
    assert done(fedscale("driver", "start", write_conf()))[0] == 0


def test_a_refused_start_leaves_no_log_folder_but_what_was_there(fedscale, write_conf, tmp_path):
    logs = tmp_path / "out" / "logs"
    assert done(fedscale("driver", "start", write_conf(), FAKE_AGGREGATOR="refuse"))[0] == 2
    assert logs.is_dir() and not list(logs.iterdir())
    assert done(fedscale("driver", "start", write_conf(), FAKE_AGGREGATOR="refuse over results"))[0] == 2
    assert [path.name for path in logs.glob("fake/*/*.json")] == ["header.json"]


def test_port_in_use(call, state, write_conf):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, _, err = call("driver", "start", write_conf({"ps_port": port}))
    assert code == 2
    assert err == (
        f"fedscale: port {port} on 127.0.0.1 is in use; choose another with --set ps_port={port + 1}, "
        "or a free one with --set ps_port=auto\n"
    )
    assert not (state / "jobs/fake/job.json").exists()


def test_name_in_use_and_stop_from_another_process(fedscale, state, write_conf):
    first = fedscale("driver", "start", write_conf(), FAKE_AGGREGATOR="wait", FAKE_EXECUTOR="wait")
    wait_until(lambda: started(state))
    code, _, err = done(fedscale("driver", "start", write_conf()))
    assert code == 2
    assert "job fake is running; stop it with `fedscale driver stop fake`" in err
    assert "running" in done(fedscale("driver", "status"))[1]
    code, out, _ = done(fedscale("driver", "stop", "fake"))
    assert (code, out) == (0, "job fake is stopped\n")
    assert done(first)[0] == 130
    assert not processes_of(state)
    assert "is not running; it stopped" in done(fedscale("driver", "stop", "fake"))[1]


def test_what_a_job_lacks_is_said_before_anything_starts(fedscale, state, write_conf, tmp_path):
    code, _, err = done(fedscale("driver", "start", write_conf(), f"--set=data_dir={tmp_path / 'none'}"))
    assert (code, err.count("\n")) == (2, 1)
    assert "the data folder" in err and "fedscale dataset" in err
    assert not (state / "jobs/fake").exists()


def test_a_complete_job_is_not_resumed_for_nothing(fedscale, state, write_conf):
    conf = write_conf()
    assert done(fedscale("driver", "start", conf))[0] == 0
    before = record(state)
    rounds = before["round"]["round"]
    code, out, err = done(fedscale("driver", "start", conf, "--resume", f"--set=rounds={rounds}"))
    assert code == 0
    assert f"has finished its {rounds} rounds" in out + err
    assert record(state) == before
    code, _, err = done(fedscale("driver", "start", conf, "--resume", "--set=rounds=6"))
    assert (code, f"has done {rounds} rounds already, more than the 6 that are asked for" in err) == (2, True)
    assert record(state) == before


def test_an_ended_job_can_be_forgotten(fedscale, state, write_conf, tmp_path):
    first = fedscale("driver", "start", write_conf(), FAKE_AGGREGATOR="wait", FAKE_EXECUTOR="wait")
    wait_until(lambda: started(state))
    assert "aggregator " in done(fedscale("driver", "status", "fake"))[1]
    code, _, err = done(fedscale("driver", "forget", "fake"))
    assert (code, "is running" in err) == (2, True)
    done(fedscale("driver", "stop", "fake"))
    first.wait(60)
    code, out, _ = done(fedscale("driver", "forget", "fake"))
    assert (code, str(tmp_path / "out") in out) == (0, True)
    assert "no job was started" in done(fedscale("driver", "status"))[1]
    assert "there is no job" in done(fedscale("driver", "forget", "fake"))[2]


def test_resume_takes_the_run_of_the_newest_checkpoint(fedscale, state, write_conf, tmp_path):
    for stamp in ("first", "second"):  # the second one fails before it has a checkpoint
        assert done(fedscale("driver", "start", write_conf(), f"--set=time_stamp={stamp}"))[0] == 0
    first = tmp_path / "out" / "logs" / "fake" / "first"
    (first / "checkpoints").mkdir(parents=True)
    (first / "checkpoints" / "checkpoint-000010.safetensors").touch()
    (first / "header.json").write_text(json.dumps({"config": load_config(write_conf()).echo()}, default=str))
    code, _, err = done(fedscale("driver", "start", write_conf(), "--resume", "--set=learning_rate=0.3"))
    assert (code, "first, has other settings: learning_rate was 0.05 and is 0.3;" in err) == (2, True)
    code, _, err = done(fedscale("driver", "start", write_conf(), "--resume"))
    assert (
        code == 0 and "note: the last run, " in err and "second, has no checkpoint; the job continues run first" in err
    )
    assert "--time_stamp=first" in json.loads((state / "jobs" / "fake" / "job.json").read_text())["argv"]
    code, _, err = done(fedscale("driver", "start", write_conf(), "--resume", "--set=learning_rate=0.3"))
    assert (code, "job fake ran with other settings: learning_rate was 0.05 and is 0.3; resume it" in err) == (2, True)


def test_resume_uses_the_last_runs_folder(fedscale, state, write_conf, tmp_path):
    code, _, err = done(fedscale("driver", "start", write_conf(), "--resume"))
    assert (code, err) == (2, "fedscale: job fake has no earlier run to resume; start it without --resume\n")
    done(fedscale("driver", "start", write_conf()))
    first = record(state)
    assert done(fedscale("driver", "start", write_conf({"log_path": str(tmp_path / "other")}), "--resume"))[0] == 0
    second = record(state)
    assert (second["time_stamp"], second["log_path"]) == (first["time_stamp"], first["log_path"])
    assert {f"--time_stamp={first['time_stamp']}", f"--log_path={tmp_path}/out", "--resume=True"} <= set(second["argv"])
    assert (state / "jobs/fake/output.log").read_text().count("plain words") == 2


@pytest.mark.parametrize(
    ("log_path", "sentence"),
    [
        ("file", "is no folder"),
        ("file/below", "cannot be created (Not a directory)"),
        ("taken", "cannot be written ({}/taken/logs/fake/now: Not a directory)"),
    ],
)
def test_a_log_path_that_cannot_be_used_is_one_sentence(call, write_conf, tmp_path, log_path, sentence):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "logs").touch()
    (tmp_path / "file").touch()
    code, out, err = call("driver", "start", write_conf({"log_path": f"{tmp_path}/{log_path}", "time_stamp": "now"}))
    folder = tmp_path / log_path
    message = f"fedscale: log_path {folder} {sentence.format(tmp_path)}; set it to a folder that you can write to"
    assert (code, out, err) == (2, "", f"{message}\n")
    assert jobs.names() == [] and not jobs.folder("fake").joinpath("token").exists()


def test_keys_of_another_method_do_nothing_and_are_told(fedscale, write_conf):
    process = fedscale("driver", "start", write_conf({"method": "fedtrans", "fedtrans.beta": 0.1, "moss.lr": 0.1}))
    code, _, err = done(process)
    assert code == 0
    assert err.splitlines()[0] == "note: moss.lr does nothing: the method is fedtrans"


def test_a_job_that_is_refused_is_told_the_refusal_alone(fedscale, write_conf):
    keys = {"method": "fedtrans", "moss.lr": 0.1}
    code, _, err = done(fedscale("driver", "start", write_conf(keys), FAKE_AGGREGATOR="refuse"))
    assert code == 2 and "filter_less 9 leaves no client" in err and "does nothing" not in err


def test_setup_commands(fedscale, state, write_conf):
    conf = write_conf(setup_commands=["source activate x", "env", f"{sys.executable} -m no_such_module"])
    code, _, err = done(fedscale("driver", "start", conf))
    assert "note: these setup_commands apply under FedScale's own driver only: source activate x\n" in err
    assert code == 1  # a failing command ends the job before it starts
    assert "setup command" in err
    assert "ended with exit code 1" in err
    log = (state / "jobs/fake/output.log").read_text()
    assert "setup command env | FEDSCALE_EXT_STATE=" in log
    assert "aggregator" not in log


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"worker_ips": ["10.9.8.7:[1]"]}, "worker_ips names 10.9.8.7, but `driver start`"),
        ({"setup_commands": ["no-such-program-here x"]}, "the program 'no-such-program-here' is not found"),
        ({"aggregator_entry": "nothing.py"}, "nothing.py"),
        ({"job_conf": {"job_name": "../x"}}, "job_name '../x' must be a file name"),
        ({"job_conf": {"num_participants": "many"}}, "num_participants"),
        ({"job_conf": {"ps_ip": "192.0.2.1"}}, "ps_ip 192.0.2.1"),
    ],
)
def test_bad_configurations_are_one_sentence(call, write_conf, change, words):
    code, _, err = call("driver", "start", write_conf(**change))
    assert code == 2
    assert words in err
    assert err.startswith("fedscale: ")
    assert err.count("\n") == 1


def test_in_a_sweep_the_sweep_goes_on_with_a_killed_job(fedscale, state, write_conf):
    conf = write_conf()
    env = {"FAKE_AGGREGATOR": "kill with checkpoint", "FAKE_EXECUTOR": "wait"}
    code, out, err = done(fedscale("driver", "start", conf, "--seeds", "1", **env))
    assert code == 1
    assert "; continue the sweep with --resume" in out + err and "continue the job" not in out + err
