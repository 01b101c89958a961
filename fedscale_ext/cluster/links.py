"""The driver's side: processes on many hosts, heard and ended as if they were this machine's."""

import json
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, Any

from fedscale_ext.cluster.access import Access
from fedscale_ext.cluster.agent import facts
from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.driver.preparation import environment
from fedscale_ext.driver.processes import Exit, Interrupt, Proc, Processes, Said

_BEAT_S = 10.0  # an agent that hears nothing for 90 s ends its processes
_HELLO_S = 60.0  # longest wait for an agent's first word; ssh gives up connecting after 15 s
_STOP_S = 6.0  # an agent ends its processes within 4.5 s
_TAIL_LINES = 15
LOST = 255  # exit code of a process whose host is gone, as ssh has it


class Links:
    """An agent on each host, by way of ssh; what its processes do arrives as it does from Processes.

    ``hosts`` gives the host of each process by its name. Output goes to ``log``, each line after its host and the
    name of its process.
    """

    def __init__(self, log: IO[str], access: Access, hosts: dict[str, str]) -> None:
        self._agents = Processes(log)
        self._access, self.hosts = access, hosts
        self.inbox = self._agents.inbox
        self.tails: dict[str, deque[str]] = {}
        self._running: dict[str, str] = {}  # host by name
        self._later: deque[Exit | Said] = deque()
        self._closing = threading.Event()
        self.folders: dict[str, str] = {}  # of each host, in which relative paths begin

    # ---- agents ----

    def connect(self, hosts: Sequence[str]) -> list[Proc]:
        """Start an agent on each host; UserError, naming the host, where there is none of the same code."""
        procs = [self._agents.start(host, self._access.command(host), environment()) for host in hosts]
        threading.Thread(target=self._beat, daemon=True).start()
        mine = facts()
        for host, its in self._hear_all(hosts, "hello", _HELLO_S).items():
            if its["version"] != mine["version"]:
                raise UserError(
                    f"{host} has fedscale_ext {its['version']}, this machine {mine['version']}: install the same "
                    "on both"
                )
            if its["sources"] != mine["sources"]:
                raise UserError(
                    f"{host} has other code of fedscale_ext {its['version']} than this machine: bring both to the same "
                    "commit"
                )
        return procs

    def begin(self, job: str, work_dir: str, token: str) -> None:
        """Have every agent claim the job, take its token and go to its folder."""
        self._leave(job, end=True)
        for host in self._agents.running():
            self._order(host, event="begin", job=job, host=host, work_dir=work_dir, token=token)
        ready = self._hear_all(self._agents.running(), "ready", _HELLO_S)
        self.folders = {host: event["folder"] for host, event in ready.items()}

    def leftovers(self, job: str, end: bool) -> dict[str, list[str]]:
        """List the processes of a job that run on each host, with their numbers; with ``end`` they were ended first."""
        return {host: event["processes"] for host, event in self._leave(job, end).items()}

    def note(self, host: str, **restart: Any) -> None:
        """Have a host's agent write down a restart; ``restart`` is what metrics.restarts.note_restart takes."""
        if host in self._agents.running():
            self._order(host, event="note", **restart)

    def _leave(self, job: str, end: bool) -> dict[str, dict[str, Any]]:
        for host in self._agents.running():
            self._order(host, event="leftovers", job=job, host=host, end=end)
        return self._hear_all(self._agents.running(), "left", _HELLO_S)

    def _order(self, to: str, **order: Any) -> None:
        self._agents.send(to, json.dumps(order))

    def _hear_all(self, hosts: Sequence[str], event: str, timeout_s: float) -> dict[str, dict[str, Any]]:
        """One event from each host; UserError for the first host that fails, KeyboardInterrupt where asked to stop."""
        deadline = time.monotonic() + timeout_s
        heard: dict[str, dict[str, Any]] = {}
        while missing := [host for host in hosts if host not in heard]:
            message = self._agents.next(deadline)
            if message is None:
                raise UserError(f"{missing[0]} does not answer within {timeout_s:g} s: is it overloaded?")
            if isinstance(message, Interrupt):
                raise KeyboardInterrupt
            if isinstance(message, Exit):
                output = self._agents.tails[message.name]
                raise UserError(self._access.trouble(message.name, message.code, output))
            if message.event["event"] == "error":
                raise UserError(f"{message.name}: {message.event['message']}")
            if message.event["event"] == event:
                heard[message.name] = message.event
        return heard

    def _beat(self) -> None:
        while not self._closing.wait(_BEAT_S):
            for host in self._agents.running():
                self._order(host, event="beat")

    # ---- processes, as Processes has them ----

    def start(self, name: str, argv: Sequence[str], **order: Any) -> None:
        """Have the host of ``name`` start a process; ``order`` is what agent.Agent._start takes."""
        host = self.hosts[name]
        self.tails[name] = deque(maxlen=_TAIL_LINES)
        self._running[name] = host
        if host in self._agents.running():
            self._order(host, event="start", name=name, argv=list(argv), **order)
        else:
            self._later.append(self._lost(name, "its host is gone"))

    def running(self) -> list[str]:
        """Names of the processes whose Exit was not taken yet."""
        return list(self._running)

    def next(self, deadline: float | None) -> Exit | Said | Interrupt | None:
        """The next message about a process, or None when ``deadline`` (monotonic seconds) passes without one."""
        while True:
            message: Exit | Said | Interrupt | None
            if self._later:
                message = self._later.popleft()
            else:
                message = self._agents.next(deadline)
                if isinstance(message, Exit):
                    self._lose(message)
                    continue
                if isinstance(message, Said):
                    message = self._translated(message.name, message.event)
                    if message is None:
                        continue
            if isinstance(message, Exit):
                if message.name not in self._running:
                    continue
                del self._running[message.name]
            return message

    def _translated(self, host: str, event: Mapping[str, Any]) -> Exit | Said | None:
        """An agent's event as that of the process it is about; its output is logged."""
        name = str(event.get("of"))
        if self.hosts.get(name) != host:  # no process of this host
            return None
        if event["event"] == "line":
            self.tails[name].append(event["text"])
            self._agents.write(f"{host} {name}", event["text"])
        elif event["event"] == "said":
            return Said(name, event["said"])
        elif event["event"] == "exit":
            return Exit(name, int(event["code"]))
        return None

    def _lose(self, gone: Exit) -> None:
        """An agent has ended: so have its processes."""
        output = self._agents.tails[gone.name]
        why = one_line(output[-1], 200) if output else gone.how
        self._later += [self._lost(name, why) for name, host in self._running.items() if host == gone.name]

    def _lost(self, name: str, why: str) -> Exit:
        return Exit(name, LOST, f"was lost with its host ({why})")

    def stop(self) -> None:
        """End all processes and agents; on a second interrupt by breaking the connections."""
        self._closing.set()
        for host in self._agents.running():
            self._order(host, event="stop")
        deadline = time.monotonic() + _STOP_S
        while self._agents.running():
            message = self._agents.next(deadline)
            if message is None or isinstance(message, Interrupt):
                break
            if isinstance(message, Said):
                self._translated(message.name, message.event)  # last lines
        self._agents.stop()
        self._running.clear()
