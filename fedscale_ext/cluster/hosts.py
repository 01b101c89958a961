"""The processes of a job on many hosts, each started by an ssh of its own, heard and ended as this machine's are."""

import json
import subprocess
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import IO, Any

from fedscale_ext.cluster.access import Access
from fedscale_ext.cluster.remote import facts
from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.driver.preparation import environment
from fedscale_ext.driver.processes import TERM_S, Exit, Interrupt, Proc, Processes, ProcessEvent, parse_event

_BEAT_S = 10.0  # a process that hears nothing for 90 s ends
_HELLO_S = 60.0  # longest wait for a host's first word; ssh gives up connecting after 15 s
_AT_ONCE = 8  # connections that are made at a time: sshd refuses some of more than ten
_HANG_UP_S = 6.0  # for processes to end, which they do at once where a machine is not overloaded
_LATE = f"does not answer within {_HELLO_S:g} s: is it overloaded?"
LOST = 255  # exit code of a process whose host is gone, as ssh has it


class Hosts(Processes):
    """Processes by ssh; ``hosts`` gives the host of each by its name. Each line of output comes after its host."""

    def __init__(self, log: IO[str], access: Access, hosts: Mapping[str, str]) -> None:
        super().__init__(log)
        self.access, self.hosts = access, dict(hosts)
        self._closing = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def begin(self, name: str) -> Proc:
        """Start a process on its host, where it waits for an order."""
        return self.start(name, self.access.command(self.hosts[name]), environment())

    def order(self, to: str, /, **order: Any) -> None:
        """Tell a process what to do; ``order`` is what cluster.remote obeys."""
        self.send(to, json.dumps(order))

    def greet(self, names: Mapping[str, str]) -> list[Proc]:
        """Start a process on each host; UserError, naming the host, where there is none of the same code."""
        self.hosts.update(names)
        mine, started, waiting = facts(), [], list(names)
        while waiting:
            group, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            started += [self.begin(name) for name in group]
            for name, its in self.answers(group, "hello", _HELLO_S, _LATE).items():
                host = names[name]
                if its["version"] != mine["version"]:
                    raise UserError(
                        f"{host} has fedscale_ext {its['version']}, this machine {mine['version']}: install the same "
                        "on both"
                    )
                if its["sources"] != mine["sources"]:
                    raise UserError(
                        f"{host} has other code of fedscale_ext {its['version']} than this machine: bring both to the "
                        "same commit"
                    )
        return started

    def answers(
        self, names: Collection[str], event: str, timeout_s: float, late: str, *, ended: bool = False
    ) -> dict[str, dict[str, Any]]:
        """One event from each process, and with ``ended`` its end, by its name.

        Raises:
            UserError: For the first that fails, or after ``timeout_s`` seconds: then ``late`` follows the host's name.
            KeyboardInterrupt: Where the driver is asked to stop.

        """
        deadline = time.monotonic() + timeout_s
        events: dict[str, dict[str, Any]] = {}
        faults: dict[str, str] = {}
        while missing := [name for name in names if name not in events or (ended and name in self.running())]:
            message = self.next(deadline)
            if message is None:
                raise UserError(f"{self.hosts[missing[0]]} {late}")
            if isinstance(message, Interrupt):
                raise KeyboardInterrupt
            if isinstance(message, ProcessEvent) and message.event["event"] == "error":
                faults[message.name] = str(message.event["message"])
            elif isinstance(message, ProcessEvent) and message.event["event"] == event:
                events[message.name] = {**message.event, "received_at": time.time()}
            elif isinstance(message, Exit) and (message.code != 0 or message.name not in events):
                raise UserError(self._trouble(message, faults.get(message.name), greeted=event != "hello"))
        return events

    def _trouble(self, gone: Exit, fault: str | None, greeted: bool) -> str:
        """Why a process has failed before the job began."""
        host, lines = self.hosts[gone.name], list(self.tails[gone.name])
        if fault is None and not greeted:
            return self.access.trouble(host, gone.code, lines)
        last_line = f": {lines[-1]}" if lines and (fault is None or fault.startswith("setup command")) else ""
        return f"{host}: {fault or f'its check {gone.how}'}{last_line}"

    def next(self, deadline: float | None) -> Exit | ProcessEvent | Interrupt | None:
        """The next message, as Processes has it; the end of a connection is that of its host."""
        message = super().next(deadline)
        if isinstance(message, Exit) and message.code == LOST:
            lines = self.tails[message.name]
            why = one_line(lines[-1], 200) if lines else message.how
            return Exit(message.name, LOST, f"was lost with its host ({why})")
        if isinstance(message, Exit) and message.code > 128:  # as shells tell of a signal
            return replace(message, code=128 - message.code)
        return message

    def write(self, name: str, line: str) -> None:
        """Put a line of output into the log, after its host and the name of its process."""
        super().write(f"{self.hosts[name]} {name}", line)

    def stop(self, term_s: float = TERM_S) -> None:
        """End all processes by hanging up, and the connections of those that have not ended then."""
        self._closing.set()
        for name in self.running():
            self.hang_up(name)
        deadline = time.monotonic() + _HANG_UP_S
        while self.running():
            message = self.next(deadline)
            if message is None or isinstance(message, Interrupt):
                break
        super().stop(term_s)

    def _beat(self) -> None:
        while not self._closing.wait(_BEAT_S):
            for name in self.running():
                self.send(name, "")


def ask(access: Access, host: str, **order: Any) -> dict[str, Any]:
    """Have a host obey a short order; its last event. UserError, naming the host, where it cannot."""
    words = json.dumps({"host": host, **order}) + "\n"
    try:
        done = subprocess.run(access.command(host), input=words, env=environment(), text=True, capture_output=True,
                              timeout=_HELLO_S)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UserError(f"{host} {_LATE}") from None
    events = [event for line in done.stdout.splitlines() if (event := parse_event(line)) is not None]
    last = events[-1] if events else {}
    if last.get("event") == "error":
        raise UserError(f"{host}: {last['message']}")
    if done.returncode != 0:
        raise UserError(access.trouble(host, done.returncode, done.stderr.splitlines()))
    return last
