"""The frame of every process of a job."""

import errno
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from fedscale_ext.core.errors import JobFailed, UserError
from fedscale_ext.entry import launch

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


@pytest.mark.parametrize(
    ("error", "code", "final"),
    [(JobFailed("all left"), 1, True), (UserError("bad"), 2, False), (ConnectionError("lost"), 1, False)],
)
def test_an_error_is_an_event_and_an_exit_code(
    error: Exception, code: int, final: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[dict[str, Any]] = []
    monkeypatch.setattr(launch, "print_event", events.append)
    monkeypatch.setattr(launch, "exit_with_parent", lambda: None)
    monkeypatch.setattr(launch.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def task() -> None:
        raise error

    with pytest.raises(SystemExit) as end:
        launch.run_guarded(task)
    assert end.value.code == code
    assert events == [{"event": "error", "message": str(error), "exit_code": code, "final": final}]


def test_a_disk_that_is_full_when_a_process_begins_is_one_sentence() -> None:
    def role(_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    config: Any = SimpleNamespace(fedscale=SimpleNamespace(log_path="/full"))
    sentence = (
        r"^the disk takes no more: /full cannot be written \(No space left on device\); make room, or set log_path"
    )
    with pytest.raises(UserError, match=sentence):
        launch._run(role, config)
