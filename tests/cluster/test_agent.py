"""An agent on its own: what it starts ends with it, however that happens, and its token stays a secret."""

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from fedscale_ext.cluster import agent, records
from fedscale_ext.cluster.access import AGENT
from fedscale_ext.driver import jobs
from fedscale_ext.driver.processes import Proc

TOKEN = "ab" * 32
SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


class Driver:
    """The other end of an agent's pipes."""

    def __init__(self, home: Path, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "FEDSCALE_EXT_STATE": str(home / "state"), **env},
        )  # fmt: skip
        self.hear("hello")

    def order(self, event: str, **order: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"event": event, **order}) + "\n")
        self.process.stdin.flush()

    def hear(self, event: str) -> dict:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            heard = json.loads(line)
            if heard["event"] == event:
                return heard
            assert heard["event"] != "error", heard
        raise AssertionError(f"the agent ended without {event}")

    def begin(self, work_dir: Path) -> None:
        self.order("begin", job="j", host="h", work_dir=str(work_dir), token=TOKEN)
        self.hear("ready")

    def sleeper(self) -> psutil.Process:
        self.order("start", name="sleep", argv=SLEEP)
        assert self.hear("line") == {"event": "line", "of": "sleep", "text": "up"}
        (child,) = psutil.Process(self.process.pid).children()
        return child


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    drivers = []

    def make(**env: str) -> Driver:
        drivers.append(Driver(tmp_path, **env))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.process.kill()
        driver.process.wait()
        for stream in (driver.process.stdin, driver.process.stdout):
            if stream:
                stream.close()


def gone(process: psutil.Process, timeout_s: float = 20) -> bool:
    """Whether a process ends in time; one that nobody waits for stays as a zombie."""
    left = [Proc("", process.pid, process.create_time())] if process.is_running() else []
    return not jobs.left_after(timeout_s, left)


def test_its_processes_end_with_the_connection(start, tmp_path):
    driver = start()
    driver.begin(tmp_path)
    child = driver.sleeper()
    driver.process.stdin.close()
    assert gone(child)
    assert driver.process.wait(20) == 1
    assert not (tmp_path / "state/jobs/j/hosts/h/token").exists()


def test_stop_is_a_good_end(start, tmp_path):
    driver = start()
    driver.begin(tmp_path)
    child = driver.sleeper()
    driver.order("stop")
    assert gone(child)
    assert driver.process.wait(20) == 0


def test_the_token_is_in_a_file_of_ones_own(start, tmp_path):
    driver = start()
    driver.begin(tmp_path)
    token = tmp_path / "state/jobs/j/hosts/h/token"
    assert token.read_text() == TOKEN + "\n"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    entry = tmp_path / "entry.py"
    entry.write_text("import sys; print(sys.argv[1:])")
    driver.order("start", name="x", argv=["--a=1; touch b"], exp_path=str(tmp_path), entry="entry.py")
    assert driver.hear("line")["text"] == f"['--a=1; touch b', '--token_file={token}']"


def test_a_silent_driver_is_a_dead_one(start, tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(agent, "_SILENT_S", 0.05)
    monkeypatch.setattr(agent, "_LEAVE_S", 0.0)
    monkeypatch.setattr(agent.os, "_exit", ran.append)
    reader, writer = os.pipe()
    monkeypatch.setattr(agent, "_STDIN", reader)
    host_agent = agent.Agent.__new__(agent.Agent)
    host_agent.processes = agent._Heard(None)
    os.write(writer, b'{"event": "beat"}\n{"event": "st')
    host_agent._listen()
    messages = [host_agent.processes.inbox.get_nowait() for _ in range(2)]
    assert messages[0].event == {"event": "beat"} and isinstance(messages[1], agent.Interrupt)
    assert ran == [1]
    os.close(reader)
    os.close(writer)


def test_one_agent_per_job_and_host(start, tmp_path):
    start().begin(tmp_path)
    second = start()
    second.order("begin", job="j", host="h", work_dir=str(tmp_path), token=TOKEN)
    message = json.loads(second.process.stdout.readline())
    assert message["exit_code"] == 2 and "job j runs there already" in message["message"]
    assert second.process.wait(20) == 2


def test_a_folder_that_is_not_there(start, tmp_path):
    driver = start()
    driver.order("begin", job="j", host="h", work_dir=str(tmp_path / "no"), token=TOKEN)
    error = json.loads(driver.process.stdout.readline())
    assert error["message"].startswith(
        f"the folder {tmp_path}/no cannot be entered: No such file or directory; make it"
    )


def test_what_a_killed_agent_left_is_found_and_ended(start, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    driver = start()
    driver.begin(tmp_path)
    child = driver.sleeper()
    both = [f"agent {driver.process.pid}", f"sleep {child.pid}"]
    deadline = time.monotonic() + 20  # its first word may be here before the agent has written it down
    while records.left("j", "h", end=False) != both and time.monotonic() < deadline:
        time.sleep(0.02)
    assert records.left("j", "h", end=False) == both
    driver.process.kill()
    driver.process.wait()
    assert records.left("j", "h", end=False) == [f"sleep {child.pid}"]
    other = start()
    other.order("leftovers", job="j", host="h", end=True)
    assert other.hear("left")["processes"] == []
    assert gone(child, 1)


def test_a_program_that_is_not_there_is_one_sentence(start, tmp_path):
    driver = start()
    driver.begin(tmp_path)
    driver.order("start", name="x", argv=["no-such-program"])
    message = driver.hear("said")["said"]
    assert message["exit_code"] == 2 and "'no-such-program' is not found" in message["message"]
    assert driver.hear("exit")["code"] == 2


def test_it_starts_without_torch():
    code = "import sys, fedscale_ext.cluster.agent, fedscale_ext.cluster.submit; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
