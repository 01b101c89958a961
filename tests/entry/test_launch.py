"""The frame of every process of a job."""

import signal
import subprocess
import sys

_CRASHES = """
import os, signal, sys
from fedscale_ext.entry import launch
def dies(config):
    os.kill(os.getpid(), signal.SIGSEGV)
sys.argv = ["entry", "--this_rank=1"]
launch.run_process(dies)
"""


def test_a_crash_of_native_code_leaves_its_place() -> None:
    done = subprocess.run([sys.executable, "-c", _CRASHES], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr
    assert "in dies" in done.stderr
