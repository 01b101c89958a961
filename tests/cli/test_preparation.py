"""What is settled before a job's first process starts."""

import os
import subprocess
import sys

from fedscale_ext.cli import preparation

from .conftest import ROOT


def test_environment_says_what_the_runtime_reads():
    from fedscale_ext.runtime import events, parent_pipe

    found = preparation.environment(one_thread=True)
    assert found[events.EVENTS_VARIABLE] == found[parent_pipe.PIPE_VARIABLE] == "1"
    assert found["OMP_NUM_THREADS"] == "1"
    assert found.get("HOME") == os.environ.get("HOME")


def test_threads_are_left_alone_where_a_gpu_computes(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert "OMP_NUM_THREADS" not in preparation.environment(one_thread=False)


def test_a_checkout_is_found_by_scripts_elsewhere(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/other")
    assert preparation.environment(one_thread=False)["PYTHONPATH"] == os.pathsep.join([str(ROOT), "/other"])
    monkeypatch.setattr(preparation.site, "getsitepackages", lambda: [str(ROOT)])  # installed: found anyway
    assert preparation.environment(one_thread=False)["PYTHONPATH"] == "/other"


def test_driver_does_without_torch():
    code = "import sys, fedscale_ext.cli.driver; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout == "False\n"
