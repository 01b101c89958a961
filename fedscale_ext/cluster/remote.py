"""What ssh runs on a host: ``python -m fedscale_ext.cluster.remote`` reads one order, says who it is, and obeys.

The order is a JSON line on standard input, the answers are events on standard output. A process that trains or checks
ends with the connection: when standard input ends, or the driver, which writes every 10 s, has been silent for 90 s.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedscale_ext.cluster import check, joining
from fedscale_ext.config.arguments import expanded
from fedscale_ext.config.job_config import entry_path, from_argv
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.events import EVENTS_VARIABLE, print_event
from fedscale_ext.driver import jobs
from fedscale_ext.driver.preparation import environment
from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.setup_commands import check_program
from fedscale_ext.driver.supervision import resuming
from fedscale_ext.entry.parent_pipe import PIPE_VARIABLE, SILENCE_VARIABLE, exit_with_parent
from fedscale_ext.metrics.job_folder.restarts import note_restart
from fedscale_ext.util.digests import digest, package_files
from fedscale_ext.util.package import VERSION
from fedscale_ext.util.token import token_in_memory

SILENT_S = 90  # the driver writes every 10 s


def facts() -> dict[str, Any]:
    """Facts that both ends must agree on before anything else: version and code of this package."""
    return {"version": VERSION, "sources": digest("", package_files())}


def _check(
    job: str, host: str, work_dir: str, setup: list[list[str]], argv: list[str], aggregates: bool, trains: bool,
    **_: Any,
) -> None:  # fmt: skip
    """Clear what is left of the job, run the setup commands, and report what hosts must have in common."""
    exit_with_parent(_end_group)
    left(job, host, end=True)
    folder = _enter(work_dir)
    for command in setup:
        check_program(command)
        code = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
        if code != 0:
            raise UserError(f"setup command {shlex.join(command)} ended with exit code {code}")
    from fedscale_ext.entry.launch import prepare_process  # loads torch

    config = from_argv(argv)
    prepare_process(config)
    print_event({"event": check.EVENT, "folder": folder, **check.report(config, aggregates, trains)})


def _run(name: str, job: str, host: str, work_dir: str, token: str, argv: list[str], **order: Any) -> None:
    """Become a process of the job: the aggregator by its ``entry``, or ``fedscale executor join``."""
    _enter(work_dir)
    with suppress(OSError):  # it is so already where no ssh started it
        os.setpgid(0, 0)  # a later order may end its group
    path = _folder(job, host) / f"{name}.json"
    path.write_text(json.dumps(asdict(Proc.of(name, os.getpid()))), encoding="utf-8")  # it stays this process
    file = token_in_memory(bytes.fromhex(token))
    if "entry" in order:
        exp_path, entry = order["entry"]
        if order["log_dir"] is not None:  # again, after its end
            argv = resuming(argv, _here(order["log_dir"]), order["ready"])
        command = [sys.executable, str(entry_path(exp_path, entry)), *argv, f"--token_file={file}"]
        env = environment()
    else:
        command, env = joining.command(argv, file), joining.environment()
    os.execve(sys.executable, command, {**env, SILENCE_VARIABLE: str(SILENT_S)})


def _here(log_dir: str) -> Path:
    """The folder of a run whose ``log_path`` may be this host's own: with ~, or with $ and a variable's name."""
    return Path(expanded("log_path", log_dir)).expanduser()


def _note(log_dir: str, process: str, reason: str, after_round: int, **_: Any) -> None:
    """Write down, where the aggregator counts them, that a process was started again."""
    with suppress(OSError):  # a disk that is full: the job will say it
        note_restart(_here(log_dir), process, reason, after_round)


def _left(job: str, host: str, end: bool, **_: Any) -> None:
    print_event({"event": "left", "processes": left(job, host, end)})


_ORDERS: Mapping[str, Callable[..., None]] = {"check": _check, "run": _run, "note": _note, "leftovers": _left}


def left(job: str, host: str, end: bool) -> list[str]:
    """Names and numbers of a job's processes that run on this host; with ``end`` they are ended first.

    The host's name is part of the folder's, in which each has its file: hosts may share a home directory.
    """
    processes = {path: _read(path) for path in sorted(_folder(job, host).glob("*.json"))}
    if end:
        jobs.end_all(list(processes.values()))
    for path, process in processes.items():
        if not process.running():
            path.unlink(missing_ok=True)
    return [f"{process.name} {process.pid}" for process in processes.values() if process.running()]


def _folder(job: str, host: str) -> Path:
    path = jobs.folder(job) / "hosts" / host.replace(":", "_")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _read(path: Path) -> Proc:
    try:
        return Proc(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise UserError(f"the record {path} is damaged; delete it") from None


def _enter(work_dir: str) -> str:
    folder = Path(expanded("work_dir", work_dir)).expanduser()
    try:
        os.chdir(folder)
    except OSError as error:
        raise UserError(
            f"the folder {folder} cannot be entered: {error.strerror}; make it, or set work_dir to the folder that "
            "relative paths of the configuration begin in"
        ) from None
    return os.getcwd()


def _end_group() -> None:
    os.killpg(0, signal.SIGKILL)  # with a setup command, which does not hear of the connection


def _order() -> dict[str, Any]:
    """Read the order without reading on: what follows is for the process that this one becomes."""
    line = b""
    while not (line.strip() and line.endswith(b"\n")):  # an empty line only shows that the driver is alive
        read = os.read(0, 1)
        if not read:
            sys.exit(1)  # the connection is gone
        line += read
    order: dict[str, Any] = json.loads(line)
    return order


def main() -> None:
    """Obey the order that standard input brings."""
    os.environ |= {EVENTS_VARIABLE: "1", PIPE_VARIABLE: "1", SILENCE_VARIABLE: str(SILENT_S)}
    print_event({"event": "hello", **facts()})
    order = _order()
    try:
        _ORDERS[order["do"]](**order)
    except UserError as error:
        print_event({"event": "error", "message": str(error), "exit_code": 2})
        sys.exit(2)


if __name__ == "__main__":
    main()
