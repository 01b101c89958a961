"""What is settled before a job's first process starts."""

import os
import subprocess
import sys

import pytest

from fedscale_ext.config.job_config import make_config, with_values
from fedscale_ext.core.events import EVENTS_VARIABLE
from fedscale_ext.driver import jobs, preparation
from fedscale_ext.driver.processes import Proc
from fedscale_ext.entry.parent_pipe import PIPE_VARIABLE

from .conftest import ROOT


def test_a_job_process_has_one_thread_and_the_drivers_environment():
    environment = preparation.environment()
    assert environment[EVENTS_VARIABLE] == environment[PIPE_VARIABLE] == "1"
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment.get("HOME") == os.environ.get("HOME")


def test_a_run_that_begins_has_a_folder_of_its_own(tmp_path):
    config = make_config({}, {"job_name": "tiny", "log_path": str(tmp_path)})
    taken = [jobs.Job("tiny", "", str(tmp_path), "1128_132854", [], Proc.of("driver", os.getpid())) for _ in range(3)]
    for job in taken:
        preparation.make_log_dir(job, config)
    assert [job.time_stamp for job in taken] == ["1128_132854", "1128_132854_2", "1128_132854_3"]
    preparation.make_log_dir(taken[1], config, resumed=True)
    preparation.make_log_dir(taken[2], with_values(config, time_stamp="1128_132854_3"))
    assert sorted(path.name for path in tmp_path.glob("logs/tiny/*")) == [job.time_stamp for job in taken]


def test_the_users_own_settings_of_malloc_stand(monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert "trim_threshold" in preparation.environment()["GLIBC_TUNABLES"]
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    assert preparation.environment()["GLIBC_TUNABLES"] == "glibc.malloc.check=1"


def test_a_checkout_is_found_by_scripts_elsewhere(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/other")
    assert preparation.environment()["PYTHONPATH"] == os.pathsep.join([str(ROOT), "/other"])
    monkeypatch.setattr(preparation.site, "getsitepackages", lambda: [str(ROOT)])  # installed: found anyway
    assert preparation.environment()["PYTHONPATH"] == "/other"


def test_driver_does_without_torch():
    code = "import sys, fedscale_ext.driver.run; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_a_wandb_key_stands_on_no_command_line(monkeypatch):
    monkeypatch.setenv(preparation.WANDB_VARIABLE, "")
    config = preparation.hide_key(make_config({}, {"wandb_token": "secret-1234"}))
    words = [word for argv in preparation.commands(config).values() for word in argv]
    assert "--wandb_token=login" in words and not any("secret-1234" in word for word in words)
    assert preparation.environment()[preparation.WANDB_VARIABLE] == "secret-1234"


@pytest.mark.parametrize("token", ["login", "$KEY_OF_MINE", None])
def test_a_wandb_token_that_shows_nothing_stays(monkeypatch, token):
    monkeypatch.setenv("KEY_OF_MINE", "secret-1234")
    monkeypatch.setenv(preparation.WANDB_VARIABLE, "")
    config = make_config({}, {} if token is None else {"wandb_token": token})
    assert preparation.hide_key(config) is config
    preparation.refuse_key(config)
    assert os.environ[preparation.WANDB_VARIABLE] == ""
    assert not any("secret-1234" in word for argv in preparation.commands(config).values() for word in argv)
