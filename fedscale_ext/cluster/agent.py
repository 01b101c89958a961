"""What runs on each host of a job: starts its processes there, tells what they say, ends them with the connection.

The driver writes orders to standard input and reads what happens from standard output, both as JSON lines with an
``event``. However the driver or the connection ends, nothing stays: the agent ends its processes when its input does,
or when it has been silent for longer than a living driver ever is, and they end themselves when the agent is killed.
"""

import json
import os
import select
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedscale_ext.cluster import records
from fedscale_ext.config.arguments import expanded
from fedscale_ext.config.job_config import entry_path
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs
from fedscale_ext.driver.preparation import environment, interrupts_into
from fedscale_ext.driver.processes import Exit, Interrupt, Processes, Said
from fedscale_ext.driver.setup_commands import check_program
from fedscale_ext.driver.supervision import resuming
from fedscale_ext.metrics.restarts import note_restart
from fedscale_ext.util.digests import digest, package_files
from fedscale_ext.util.package import VERSION
from fedscale_ext.util.token import write_token

_STDIN = 0  # the descriptor itself: nothing is to be left in a buffer
_DRIVER = "driver"  # whose orders are heard like what a process says
_SILENT_S = 90.0  # the driver writes every 10 s
_LEAVE_S = 12.0  # for ending all processes once the connection is gone
_PATIENCE_S = 3.0  # between the polite and the forceful end of processes


def facts() -> dict[str, Any]:
    """Facts that both ends must agree on before anything else: version and code of this package."""
    return {"version": VERSION, "sources": digest("", package_files())}


class _Heard(Processes):
    """Processes whose output goes to the driver."""

    def __init__(self, tell: Any) -> None:
        super().__init__(sys.stderr)  # never written to
        self._tell = tell

    def write(self, name: str, line: str) -> None:
        """Tell the driver a line of a process's output."""
        self._tell(event="line", of=name, text=line.rstrip())


class Agent:
    """One host's side of a job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # a stray print must not break the lines
        self.processes = _Heard(self.tell)
        self.record: records.Record | None = None
        self.token: Path | None = None

    def tell(self, **event: Any) -> None:
        """Write one line to the driver."""
        try:
            with self._lock:
                self._out.write(f"{json.dumps(event)}\n")
                self._out.flush()
        except (OSError, ValueError):  # the connection is gone
            self.processes.inbox.put(Interrupt(1))

    def run(self) -> int:
        """Do what the driver orders until it says stop (exit code 0), sends bad orders (2) or is gone (1)."""
        threading.Thread(target=self._listen, daemon=True).start()
        self.tell(event="hello", **facts())
        try:
            with interrupts_into(self.processes.inbox):
                try:
                    return self._work()
                finally:
                    self.processes.stop(_PATIENCE_S)
        except UserError as error:
            self.tell(event="error", message=str(error), exit_code=2)
            return 2
        finally:
            if self.token is not None:
                self.token.unlink(missing_ok=True)
            if self.record is not None:
                self.record.close()

    def _work(self) -> int:
        while True:
            message = self.processes.next(None)
            if isinstance(message, Interrupt):
                return 1
            if isinstance(message, Said) and message.name == _DRIVER:
                if message.event["event"] == "stop":
                    return 0
                self._obey(message.event)
            elif isinstance(message, Said):
                self.tell(event="said", of=message.name, said=message.event)
            elif isinstance(message, Exit):
                self.tell(event="exit", of=message.name, code=message.code)

    def _obey(self, order: dict[str, Any]) -> None:
        kind = order["event"]
        if kind == "begin":
            self._begin(**order)
        elif kind == "start":
            self._start(**order)
        elif kind == "note":
            with suppress(OSError):  # a disk that is full: the job will say it
                note_restart(Path(order["log_dir"]), order["process"], order["reason"], order["after_round"])
        elif kind == "leftovers":
            self.tell(event="left", processes=records.left(order["job"], order["host"], order["end"]))

    def _begin(self, job: str, host: str, work_dir: str, token: str, **_: Any) -> None:
        """Claim the job on this host and move to its folder."""
        folder = Path(expanded("work_dir", work_dir)).expanduser()
        try:
            os.chdir(folder)
        except OSError as error:
            raise UserError(
                f"the folder {folder} cannot be entered: {error.strerror}; make it, or set work_dir to the folder that "
                "relative paths of the configuration begin in"
            ) from None
        self.record = records.Record(job, host)
        self.token = self.record.folder / "token"
        write_token(self.token, token)
        self.tell(event="ready", folder=os.getcwd())

    def _start(self, name: str, argv: list[str], log_dir: str | None = None, **order: Any) -> None:
        """Start a process: an ``entry`` below ``exp_path``, a ``module`` of this package, or a setup command."""
        if log_dir is not None:  # again, after its end
            argv = resuming(argv, Path(log_dir))
        try:
            if "entry" in order:
                argv = [sys.executable, str(entry_path(order["exp_path"], order["entry"])), *argv]
                argv.append(f"--token_file={self.token}")
            elif "module" in order:
                argv = [sys.executable, "-m", order["module"], *argv]
            else:
                check_program(argv)
            child = self.processes.start(name, argv, environment())
        except UserError as error:
            self.tell(event="said", of=name, said={"event": "error", "message": str(error), "exit_code": 2})
            self.tell(event="exit", of=name, code=2)
            return
        if self.record is not None:
            self.record.add(child, self.processes.running())

    def _listen(self) -> None:
        """Turn the driver's lines into messages; its end, or its silence, into an interrupt."""
        rest = b""
        with suppress(OSError, ValueError):
            while select.select([_STDIN], [], [], _SILENT_S)[0]:
                read = os.read(_STDIN, 65536)
                if not read:
                    break
                *lines, rest = (rest + read).split(b"\n")
                for line in filter(None, lines):
                    self.processes.inbox.put(Said(_DRIVER, json.loads(line)))
        self.processes.inbox.put(Interrupt(1))
        threading.Event().wait(_LEAVE_S)
        os._exit(1)  # the main thread hangs, in a write to a connection that is dead: processes see their input end


def main() -> None:
    """Run the agent in this process."""
    jobs.state_dir()
    sys.exit(Agent().run())


if __name__ == "__main__":
    main()
