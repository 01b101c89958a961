"""A job of fake processes: tests of the command need no training."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FAKES = Path(__file__).parent / "fake_entries"
Fedscale = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state"
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(path))
    return path


@pytest.fixture
def write_conf(tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration of the fake entries; keyword arguments change its top-level keys."""

    def write(job_conf: dict[str, object] | None = None, **cluster: object) -> Path:
        data = tmp_path / "data"
        (data / "client_data_mapping").mkdir(parents=True, exist_ok=True)
        flat = {"job_name": "fake", "data_dir": str(data), "log_path": str(tmp_path / "out"), "ps_port": "auto",
                "use_cuda": False}  # fmt: skip
        flat.update(job_conf or {})
        conf = {
            "worker_ips": ["localhost:[2]"],
            "exp_path": str(FAKES),
            "aggregator_entry": "aggregator.py",
            "executor_entry": "executor.py",
            **cluster,
            "job_conf": [{key: value} for key, value in flat.items()],
        }
        path = tmp_path / "conf.yml"
        path.write_text(yaml.safe_dump(conf))
        return path

    return write


@pytest.fixture
def fedscale(state: Path) -> Iterator[Fedscale]:
    """Starts the command; keyword arguments are environment variables. What is left running at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object, **env: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "fedscale_ext.cli", *map(str, arguments)],
            cwd=ROOT, env={**os.environ, **env}, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


@pytest.fixture
def call(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs the command within this process; its exit code and what it printed."""
    from fedscale_ext.cli.main import main

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedscale", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), *capsys.readouterr()

    return run


def done(process: "subprocess.Popen[str]", timeout_s: float = 120) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err


def heard(process: "subprocess.Popen[str]", text: str) -> str:
    """What the process says on stderr until ``text`` is there; the rest is left for :func:`done`."""
    assert process.stderr is not None
    descriptor, output = process.stderr.fileno(), b""

    def there() -> bool:
        nonlocal output
        with suppress(BlockingIOError):
            output += os.read(descriptor, 65536)
        return text.encode() in output

    os.set_blocking(descriptor, False)
    wait_until(there)
    os.set_blocking(descriptor, True)
    return output.decode()


def wait_until(true: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def processes_of(state: Path) -> list[psutil.Process]:
    """Running processes that belong to a job of this state directory, by their environment."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("FEDSCALE_EXT_STATE") == str(state) and process.status() != "zombie":
                processes.append(process)
        except psutil.Error:
            pass
    return [process for process in processes if process.pid != os.getpid()]
