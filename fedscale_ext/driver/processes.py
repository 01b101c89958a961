"""Processes that a driver starts: identified safely, heard by threads instead of polls, ended as groups."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

_SAME_PROCESS_S = 2.0  # create times of one process differ by less, unless the clock was set
_TAIL_LINES = 15
_LAST_LINES_S = 2.0  # wait for the output of a process that has ended
TERM_S, _KILL_S = 3.0, 1.5  # together under the 5 s in which Ctrl-C stops a job


@dataclass(frozen=True)
class Proc:
    """A process that cannot be mistaken for a later one with the same number.

    ``created`` is in seconds since 1970, which move when the clock is set; ``born`` names the moment without a clock,
    where the system tells it.
    """

    name: str
    pid: int
    created: float
    born: str | None = None

    @classmethod
    def of(cls, name: str, pid: int) -> "Proc":
        """The running process ``pid``; one that is gone already gets a create time that matches nothing."""
        try:
            return cls(name, pid, psutil.Process(pid).create_time(), _born(pid))
        except psutil.NoSuchProcess:
            return cls(name, pid, 0.0)

    def running(self) -> psutil.Process | None:
        """The process, if it still runs and is the one that was meant."""
        try:
            process = psutil.Process(self.pid)
            if self._is(process):
                return None if process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.NoSuchProcess:
            pass
        return None

    def _is(self, process: psutil.Process) -> bool:
        if self.born is not None:
            return self.born == _born(self.pid)
        return abs(process.create_time() - self.created) < _SAME_PROCESS_S


def _born(pid: int) -> str | None:
    """Which start of the system a process is of, and how many ticks after it began; None where /proc does not tell."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19]  # the 22nd; ")" ends the name
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {int(ticks)}"
    except (OSError, IndexError, ValueError):
        return None


def signal_group(pid: int, number: int) -> None:
    """Signal a process that leads its own group, and what it started."""
    with suppress(ProcessLookupError, PermissionError):  # macOS reports a group of zombies as not permitted
        os.killpg(pid, number)


@dataclass(frozen=True)
class Exit:
    """A process has ended; a negative code is the number of the signal that ended it.

    ``why`` tells what the code does not, for a process whose host is gone.
    """

    name: str
    code: int
    why: str | None = None

    @property
    def how(self) -> str:
        """The exit code in words."""
        if self.why is not None:
            return self.why
        if self.code < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-self.code).name}"
        return f"ended with exit code {self.code}"


@dataclass(frozen=True)
class ProcessEvent:
    """An event that a process printed on standard output as a JSON line."""

    name: str
    event: dict[str, Any]


@dataclass(frozen=True)
class Interrupt:
    """The driver was asked to stop."""

    number: int


class Processes:
    """The running processes of a job.

    Everything that happens arrives in order on ``inbox``: Exit, ProcessEvent, and Interrupt from a signal
    handler (a SimpleQueue may be put to from within one). Output goes to ``log``, each line after
    the name of its process.
    """

    def __init__(self, log: IO[str]):
        self.inbox: queue.SimpleQueue[Exit | ProcessEvent | Interrupt] = queue.SimpleQueue()
        self.tails: dict[str, deque[str]] = {}
        self._log = log
        self._log_lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> Proc:
        """Start a process in a session of its own.

        Its standard input is a pipe that closes when this process ends, however it ends.
        """
        process = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self._running[name] = process
        self.tails[name] = deque(maxlen=_TAIL_LINES)
        readers = [
            threading.Thread(target=self._read, args=(name, lines), daemon=True)
            for lines in (process.stdout, process.stderr)
        ]
        for reader in readers:
            reader.start()
        threading.Thread(target=self._wait, args=(name, process, readers), daemon=True).start()
        return Proc.of(name, process.pid)

    def send(self, name: str, line: str) -> None:
        """Write a line to a process's standard input; one that is gone gets nothing."""
        process = self._running.get(name)
        if process is not None and process.stdin is not None:
            with self._send_lock, suppress(OSError, ValueError):  # ValueError: closed already
                process.stdin.write(f"{line}\n")
                process.stdin.flush()

    def hang_up(self, name: str) -> None:
        """End a process's standard input, as the end of this process would."""
        process = self._running.get(name)
        if process is not None and process.stdin is not None:
            with self._send_lock, suppress(OSError):
                process.stdin.close()

    def running(self) -> list[str]:
        """Names of the processes whose Exit was not taken from the inbox yet."""
        return list(self._running)

    def next(self, deadline: float | None) -> Exit | ProcessEvent | Interrupt | None:
        """The next message, or None when ``deadline`` (monotonic seconds) passes without one."""
        try:
            message = self.inbox.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None
        if isinstance(message, Exit):
            del self._running[message.name]
        return message

    def end(self, name: str) -> None:
        """Ask one process to end, politely; its Exit comes later."""
        if (process := self._running.get(name)) is not None:
            signal_group(process.pid, signal.SIGTERM)

    def stop(self, term_s: float = TERM_S) -> None:
        """End all processes: politely, after ``term_s`` or a second interrupt by force. Returns when all are gone."""
        for number, wait_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, _KILL_S)):
            for process in self._running.values():
                signal_group(process.pid, number)
            deadline = time.monotonic() + wait_s
            while self._running:
                message = self.next(deadline)
                if message is None or isinstance(message, Interrupt):
                    break

    def _read(self, name: str, lines: IO[str]) -> None:
        for line in lines:
            event = parse_event(line)
            if event is not None:
                self.inbox.put(ProcessEvent(name, event))
                continue
            self.tails[name].append(line.rstrip("\n"))
            self.write(name, line)

    def write(self, name: str, line: str) -> None:
        """Put a line of output into the log, after the name of who said it."""
        with self._log_lock, suppress(OSError):  # full disk: whoever stopped reading would stop the process as well
            self._log.write(f"{name} | {line.rstrip()}\n")
            self._log.flush()

    def _wait(self, name: str, process: "subprocess.Popen[str]", readers: Sequence[threading.Thread]) -> None:
        code = process.wait()
        signal_group(process.pid, signal.SIGKILL)  # what it started and left behind
        for reader in readers:
            reader.join(_LAST_LINES_S)
        self.inbox.put(Exit(name, code))


def parse_event(line: str) -> dict[str, Any] | None:
    """The event in a line of output; None in a line of any other kind."""
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
