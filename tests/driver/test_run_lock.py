"""The folder of a run has one writer, whichever state directory a driver has."""

import errno
import fcntl
import os
import platform
import signal
from pathlib import Path

import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import run_lock
from fedscale_ext.driver.progress import Display
from fedscale_ext.driver.run import start
from fedscale_ext.driver.sweeps import sweep_records
from fedscale_ext.driver.tables import console

from .conftest import done, wait_until


def test_a_driver_with_another_state_directory_leaves_a_running_run_alone(fedscale, state, write_conf, tmp_path):
    conf, run = write_conf({"time_stamp": "t"}), tmp_path / "out" / "logs" / "fake" / "t"
    first = fedscale("driver", "start", conf, FAKE_AGGREGATOR="wait", FAKE_EXECUTOR="wait")
    wait_until((run / run_lock.NAME).is_file)
    other = {"FEDSCALE_EXT_STATE": str(tmp_path / "other")}
    for options in ((), ("--resume", "--set=time_stamp=t")):
        code, _, err = done(fedscale("driver", "start", conf, *options, **other))
        who = f"process {first.pid} on {platform.node()}"
        sentence = f"fedscale: the run {run} is written by {who}: wait until it has ended, or stop it there\n"
        assert (code, err) == (2, sentence)
    first.send_signal(signal.SIGINT)
    assert done(first)[0] == 130 and not (run / run_lock.NAME).exists()
    assert done(fedscale("driver", "start", conf, **other))[0] == 0


def test_a_run_whose_writer_was_killed_is_free(tmp_path: Path) -> None:
    (tmp_path / run_lock.NAME).write_bytes(b"process 5 on node7")
    with run_lock.sole_writer(tmp_path):
        assert (tmp_path / run_lock.NAME).read_text() == f"process {os.getpid()} on {platform.node()}"
        with pytest.raises(UserError, match="is written by process"), run_lock.sole_writer(tmp_path):
            pass
    assert os.listdir(tmp_path) == []


def test_a_folder_that_takes_no_file_keeps_nobody_out(tmp_path: Path) -> None:
    with run_lock.sole_writer(tmp_path / "absent"):
        assert os.listdir(tmp_path) == []


def test_jobs_and_sweeps_run_where_no_locks_are(state, write_conf, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    display = Display(console(), console(stderr=True))
    assert start(str(write_conf()), [], display, resume=False, resume_from=None, supervise=False) == 0
    with sweep_records.claim("fake-sweep"):
        assert sweep_records.claimant("fake-sweep") is not None
