"""What an agent notes of its processes on its host, so that a later one can tell and end what was left."""

import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs
from fedscale_ext.driver.processes import Proc

_LEAVE_S = 6.0  # in which an agent ends its processes and itself


class Record:
    """The host's part of a running job: claimed while the agent lives, with its processes in ``processes.json``.

    The host's name is part of the folder's: hosts may share a home directory.
    """

    def __init__(self, job: str, host: str) -> None:
        self.folder = _folder(job, host)
        try:
            self._claim = jobs.lock(self.folder)
        except BlockingIOError:
            raise UserError(
                f"job {job} runs there already: stop it with `fedscale driver stop {job}` where it was started, or set "
                "another job_name"
            ) from None
        self._processes = [Proc.of("agent", os.getpid())]
        self._write()

    def add(self, process: Proc, running: list[str]) -> None:
        """Note a new process; of the others, those in ``running`` are still there."""
        self._processes = [known for known in self._processes if known.name in ("agent", *running)]
        self._processes.append(process)
        self._write()

    def close(self) -> None:
        """Delete the record of processes, since none is left."""
        (self.folder / "processes.json").unlink(missing_ok=True)
        self._claim.close()

    def _write(self) -> None:
        path = self.folder / "processes.json"
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps([asdict(process) for process in self._processes]), encoding="utf-8")
        os.replace(temporary, path)


def left(job: str, host: str, end: bool) -> list[str]:
    """Names and numbers of a job's processes that run on this host; with ``end`` they are ended first."""
    processes = _read(_folder(job, host) / "processes.json")
    if end:
        for agent in processes[:1]:
            if (process := agent.running()) is not None:
                process.send_signal(signal.SIGTERM)  # it ends its own processes
                jobs.left_after(_LEAVE_S, [agent])
        jobs.end_all(processes)
    return [f"{process.name} {process.pid}" for process in processes if process.running()]


def _folder(job: str, host: str) -> Path:
    path = jobs.folder(job) / "hosts" / host.replace(":", "_")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _read(path: Path) -> list[Proc]:
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return [Proc(**entry) for entry in entries]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError):
        raise UserError(f"the record {path} is damaged; delete it") from None
