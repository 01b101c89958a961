"""What ssh runs on a host: it ends with its connection, however that happens, and its token stays a secret."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fedscale_ext.cluster import remote
from fedscale_ext.cluster.access import REMOTE
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs
from fedscale_ext.driver.processes import Proc

TOKEN = "ab" * 32
ROLES = {"aggregates": True, "trains": False}
ENTRY = "import sys; print(sys.argv[1:], flush=True); {more}"
WAITS = "from fedscale_ext.entry.parent_pipe import exit_with_parent as e; e(); import time; time.sleep(600)"
TELLS = "print(open(sys.argv[-1].partition('=')[2]).read().strip())"


class Driver:
    """The other end of the pipes of a host's process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-m", REMOTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "FEDSCALE_EXT_STATE": str(home / "state")}, start_new_session=True,
        )  # fmt: skip
        assert self.hear()["event"] == "hello"

    def order(self, do: str, **order: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n" + json.dumps({"do": do, "job": "j", "host": "h", **order}) + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(self.line())
        return heard

    def run(self, more: str, **order: object) -> str:
        """Become an entry that prints its arguments and does ``more``; what it printed."""
        (self.home / "entry.py").write_text(ENTRY.format(more=more))
        fields = {"name": "aggregator", "work_dir": str(self.home), "token": TOKEN, "log_dir": None}
        self.order("run", **{**fields, "argv": ["--a=1; touch b"], "entry": [str(self.home), "entry.py"], **order})
        return self.line()


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Driver]]:
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    drivers = []

    def make() -> Driver:
        drivers.append(Driver(tmp_path))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.process.kill()
        driver.process.wait()
        for stream in (driver.process.stdin, driver.process.stdout):
            if stream:
                stream.close()


def test_a_process_ends_with_the_connection(start):
    driver = start()
    driver.run(WAITS)
    assert driver.process.poll() is None
    driver.process.stdin.close()
    assert driver.process.wait(60) == -15  # asked to leave


def test_what_was_begun_is_finished_when_the_connection_ends(start):
    driver = start()
    driver.run("import signal; signal.signal(15, lambda *_: (print('saved', flush=True), sys.exit(143))); " + WAITS)
    driver.process.stdin.close()
    assert driver.line() == "saved"
    assert driver.process.wait(60) == 143


def test_the_token_is_in_no_file_and_no_argument(start, tmp_path):
    driver = start()
    argv = driver.run(TELLS)
    assert argv.startswith("['--a=1; touch b', '--token_file=/proc/self/fd/")
    assert driver.line() == TOKEN
    assert driver.process.wait(60) == 0
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN in path.read_text()]


def test_an_executor_joins_with_the_token(start, tmp_path):
    driver = start()
    driver.order("run", name="executor 1", work_dir=str(tmp_path), token=TOKEN, argv=["127.0.0.1:1", "--wait", "0"])
    assert driver.process.wait(120) == 2  # no aggregator is there, so that nothing refused the token's file


@pytest.mark.parametrize("folder", ["$RUNS/run", "~/run"])
def test_an_aggregator_goes_on_from_its_checkpoint(start, tmp_path, monkeypatch, folder):
    monkeypatch.setenv("RUNS", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    checkpoint = tmp_path / "run/checkpoints/checkpoint-000001.safetensors"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    assert "'--a=1; touch b', '--resume=True'" in start().run("", log_dir=folder, ready=True)


def test_what_was_left_is_found_and_ended(start):
    driver = start()
    driver.run("import time; time.sleep(600)")  # deaf to its connection
    me = f"aggregator {driver.process.pid}"
    assert remote.left("j", "h", end=False) == [me]
    other = start()
    other.order("leftovers", end=True)
    assert other.hear() == {"event": "left", "processes": []}
    assert driver.process.wait(60) == -15
    assert remote.left("j", "h", end=False) == []


def test_a_number_that_another_process_has_by_now_is_left_alone(start, tmp_path):
    folder = tmp_path / "state/jobs/j/hosts/h"
    folder.mkdir(parents=True)
    mine = psutil.Process().create_time()
    (folder / "executor 1.json").write_text(
        json.dumps({"name": "executor 1", "pid": os.getpid(), "created": mine - 60})
    )
    assert remote.left("j", "h", end=True) == []
    assert not list(folder.iterdir())


def test_a_folder_that_is_not_there_is_one_sentence(start, tmp_path):
    driver = start()
    driver.order("run", name="a", work_dir=str(tmp_path / "no"), token=TOKEN, argv=[])
    error = driver.hear()
    assert error["message"].startswith(
        f"the folder {tmp_path}/no cannot be entered: No such file or directory; make it"
    )
    assert (error["exit_code"], driver.process.wait(60)) == (2, 2)


def check(driver: Driver, *setup: list[str]) -> None:
    driver.order("check", work_dir=str(driver.home), setup=list(setup), argv=[], **ROLES)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["no-such-program"], "'no-such-program' is not found"),
        ([sys.executable, "-c", "exit(3)"], "setup command .* ended with exit code 3"),
    ],
)
def test_a_setup_command_that_fails_is_one_sentence(tmp_path, monkeypatch, command, sentence):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=sentence):
        remote._check(job="j", host="h", work_dir=str(tmp_path), setup=[command], argv=[], **ROLES)


def test_a_setup_command_ends_with_the_connection(start):
    driver = start()
    check(driver, [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"])
    child = Proc.of("setup", int(driver.line()))
    driver.process.stdin.close()
    assert driver.process.wait(60) == -9
    assert not jobs.left_after(60, [child])


def test_a_restart_is_noted(tmp_path):
    remote._note(log_dir=str(tmp_path), process="executor 1", reason="it died", after_round=3)
    assert json.loads((tmp_path / "restarts.jsonl").read_text())["after_round"] == 3


def test_it_starts_without_torch():
    code = "import sys, fedscale_ext.cluster.remote, fedscale_ext.cluster.submit; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
