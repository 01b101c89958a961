"""``fedscale driver check``, and that a sweep starts no job before all are checked."""

import os
import signal
from pathlib import Path

import pytest
import yaml

from fedscale_ext.driver import job_checks as check
from fedscale_ext.driver import jobs, preparation
from fedscale_ext.driver.sweeps import sweep_records
from fedscale_ext.driver.tables import console

from .conftest import done


@pytest.fixture
def fake_check(monkeypatch):
    """The process of the check is a fake, and the fake job's entries are said to be of this package."""
    monkeypatch.setattr(check, "_MODULE", "fake_check")
    monkeypatch.setattr(check, "PACKAGE", Path(__file__).parent)
    plain = preparation.environment
    monkeypatch.setattr(preparation, "environment", lambda: {**plain(), "PYTHONPATH": str(Path(__file__).parent)})


def test_every_job_that_cannot_start_is_named(call, state, write_conf, fake_check):
    conf = write_conf()
    code, out, err = call("driver", "check", conf, "--grid", "num_participants=3,9", "--grid", "rounds=5,0")
    assert code == 2
    assert out.splitlines() == [
        "fake-num_participants_3-rounds_5",
        "  data          real: writers",
        "  note          clients are tested on test.csv",
    ]
    alike, other = sorted(err.splitlines())[::-1]
    assert alike.startswith(
        "fedscale: jobs fake-num_participants_3-rounds_0, fake-num_participants_9-rounds_0: --set rounds: key 'rounds' "
    )
    assert other == "fedscale: job fake-num_participants_9-rounds_5: num_participants 9 is above the 4 clients"


def test_one_job_is_checked_and_nothing_of_it_is_remembered(call, state, write_conf, fake_check, tmp_path):
    code, out, err = call("driver", "check", write_conf({"moss.lr": 0.1}))
    assert (code, err) == (0, "")
    assert out.splitlines()[-3:] == [
        "  note          clients are tested on test.csv",
        "note: moss.lr does nothing: the method is fedavg",
        "1 job can start",
    ]
    assert jobs.names() == [] and not (tmp_path / "out").exists()
    code, out, err = call("driver", "check", write_conf({"job_name": "../x"}))
    assert (code, out) == (2, "") and "job_name '../x' must be a file name" in err


def test_what_no_job_of_a_sweep_reads_is_said_once(call, state, write_conf, fake_check):
    conf = write_conf({"moss.lr": 0.1, "fedtrans.beta": 0.1})
    code, out, err = call("driver", "check", conf, "--seeds", "0-1", "--grid", "method=fedavg,fedtrans")
    assert (code, err) == (0, "")
    assert out.count("do nothing") + out.count("does nothing") == 1
    assert out.splitlines()[-2:] == [
        "note: moss.lr does nothing: the methods are fedavg, fedtrans", "4 jobs can start"
    ]  # fmt: skip


@pytest.mark.parametrize("seed", ["seed=5", "seed=1"])
def test_a_seed_beside_seeds_is_refused(call, state, write_conf, seed):
    message = f"fedscale: --set {seed} and --seeds 1,2 both set seed; remove one of them\n"
    assert call("driver", "check", write_conf(), "--seeds", "1,2", "--set", seed) == (2, "", message)


def test_what_setup_commands_may_bring_is_not_missed(call, state, write_conf, fake_check, tmp_path):
    keys = {"device_conf_file": str(tmp_path / "devices.csv")}
    code, out, _ = call("driver", "check", write_conf(keys, setup_commands=["env"]))
    assert code == 0 and "note          setup_commands may bring what is missing: data, devices" in out
    (tmp_path / "devices.csv").touch()
    assert "real: writers" in call("driver", "check", write_conf(keys, setup_commands=["env"]))[1]
    (tmp_path / "devices.csv").unlink()  # and no command of this machine brings it
    assert "real: writers" in call("driver", "check", write_conf(keys, setup_commands=["source x"]))[1]


def test_a_job_whose_data_are_on_machines_that_join_is_checked_for_its_settings(
    call, state, write_conf, fake_check, monkeypatch
):
    orders = []
    monkeypatch.setattr(check, "_events", lambda new, out, err: orders.extend(new) or {
        "fake": {"event": "checked", "job": "fake", "facts": [], "notices": []}
    })  # fmt: skip
    code, out, err = call("driver", "check", write_conf({"data_dir": "/nowhere"}, worker_ips=[]))
    assert (code, err) == (0, "") and orders[0]["data"] is False
    assert "the data are on machines that join: data, devices and models are checked when the job starts" in out
    call("driver", "check", write_conf(worker_ips=[]))
    assert orders[1]["data"] is True
    code, out, err = call("driver", "check", write_conf({"data_dir": "/nowhere"}))
    assert code == 2 and "the data folder /nowhere does not exist" in err


def test_a_check_that_dies_is_no_pass(call, state, write_conf, fake_check, monkeypatch):
    monkeypatch.setenv("FAKE_CHECK", "die")
    code, out, err = call("driver", "check", write_conf())
    assert (code, out) == (1, "")
    assert "the check ended with exit code 3 at job fake: out of memory" in err


def test_an_interrupt_ends_the_check(call, state, write_conf, fake_check, monkeypatch):
    monkeypatch.setenv("FAKE_CHECK", "wait")
    monkeypatch.setattr(check, "_take", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    assert call("driver", "check", write_conf())[0] == 130


def test_a_sweep_that_is_interrupted_in_its_check_says_so(call, state, write_conf, fake_check, monkeypatch):
    monkeypatch.setenv("FAKE_CHECK", "wait")
    monkeypatch.setattr(check, "_take", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    code, out, err = call("driver", "start", write_conf(), "--seeds", "0-1")
    assert (code, out) == (130, "") and sweep_records.names() == []
    assert err == "fedscale: the sweep was stopped while its jobs were checked: none was started\n"


def test_a_picture_says_which_job_is_checked():
    display = check._Display(console(), console(stderr=True), 2)
    events = {}
    for event in ({"event": "checking", "job": "a"}, {"event": "progress", "what": "256 samples decoded"}):
        check._take(event, events, display)
    assert display.picture().plain == "checking a (1 of 2 jobs): 256 samples decoded ..."
    check._take({"event": "refused", "job": "a", "message": "no"}, events, display)
    check._take({"event": "checking", "job": "b"}, events, display)
    assert display.picture().plain == "checking b (2 of 2 jobs) ..." and list(events) == ["a"]


def test_a_sweep_starts_no_job_where_one_is_wrong(call, state, write_conf, fake_check):
    conf = write_conf()
    code, out, err = call("driver", "start", conf, "--grid", "num_participants=3,9", "--seeds", "0-1")
    assert (code, out) == (2, "")
    assert err == (
        "fedscale: job fake-num_participants_9-s0 of the sweep: num_participants 9 is above the 4 clients; 1 other job "
        "cannot start either, as `fedscale driver check` tells\n"
    )
    assert jobs.names() == [] and sweep_records.read("fake-sweep") is None


def test_the_real_command_checks_a_sweep_before_its_first_job(fedscale, state, tiny_femnist, tmp_path):
    keys = {"job_name": "tiny", "data_dir": str(tiny_femnist), "data_set": "femnist", "model": "cnn_small",
            "rounds": 1, "num_participants": 4, "local_steps": 1, "filter_less": 0, "use_cuda": False,
            "overcommitment": 1.0, "ps_port": "auto", "log_path": str(tmp_path), "public_samples": 4}  # fmt: skip
    conf = tmp_path / "job.yml"
    conf.write_text(yaml.safe_dump({"worker_ips": ["localhost:[1]"], "job_conf": [{k: v} for k, v in keys.items()]}))
    types = "--set=fedmd.types=[cnn_small,resnet18]"
    words = [conf, "--grid", "method=fedavg,fedmd", types, "--set=fedmd.groups=[3,3]"]
    code, out, err = done(fedscale("driver", "start", *words))
    assert (code, out) == (2, "")
    assert err.startswith("fedscale: job tiny-method_fedmd of the sweep: fedmd.groups is [3, 3], which adds up to 6;")
    assert jobs.names() == [] and not (tmp_path / "logs").exists()
    code, out, err = done(fedscale("driver", "check", *words, "--set=fedmd.groups=[3,4]"))
    assert (code, err) == (0, "")
    assert "  participants  4 of 7 clients in each of 1 rounds" in out and out.endswith("2 jobs can start\n")
    assert "note          fedmd gives 3 of 7 clients cnn_small (" in out
