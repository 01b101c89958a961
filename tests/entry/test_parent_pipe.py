"""A process of a job ends with its driver, and not before."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# from its file, because importing the package that it lies in loads torch
START = "import runpy; runpy.run_path('fedscale_ext/entry/parent_pipe.py')['exit_with_parent']()\n"


def child(code: str, **env: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", START + code], cwd=ROOT, stdin=subprocess.PIPE, env={**os.environ, **env}
    )


def test_ends_when_the_pipe_closes():
    process = child("import time\nwhile True: time.sleep(60)", FEDSCALE_EXT_PARENT_PIPE="1")
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(60) == 1


def test_ends_while_computing_and_after_input():
    process = child("while True: pass", FEDSCALE_EXT_PARENT_PIPE="1")
    process.stdin.write(b"words")
    process.stdin.close()
    assert process.wait(60) == 1


def test_normal_exit_is_not_held_up():
    process = child("", FEDSCALE_EXT_PARENT_PIPE="1")
    assert process.wait(60) == 0
    process.stdin.close()


def test_does_nothing_unless_asked():
    process = child("import time; time.sleep(0.5)", FEDSCALE_EXT_PARENT_PIPE="")
    process.stdin.close()
    assert process.wait(60) == 0


def test_a_silent_driver_of_another_machine_is_a_dead_one():
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(60)"
    process = child(deaf, FEDSCALE_EXT_PARENT_PIPE="1", FEDSCALE_EXT_PARENT_SILENCE_S="0.1")
    assert process.wait(60) in (1, -15)  # -15: before it was deaf
    process.stdin.close()
