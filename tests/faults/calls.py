"""Calls that are repeated, lost or late: what a network does to messages, between an executor and its stub."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc

from fedscale_ext.transport.executor_link import ALIVE, Connection

KINDS = ("twice", "request lost", "reply lost", "late", "as it should")


class Lost(grpc.RpcError):
    """What a caller sees of a message that did not arrive."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "lost by a test"


class BadStub:
    """FedScale's stub; each call suffers the next of ``kinds``, which is written to ``log``.

    ``late``: before a call arrives, all earlier ones of the same name arrive once more, newest first.
    """

    def __init__(self, stub: Any, kinds: Iterator[str], log: Path) -> None:
        self._stub, self._kinds, self._log = stub, kinds, log
        self._earlier: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._stub, name)

        def call(request: Any, **keywords: Any) -> Any:
            if getattr(request, "event", "") == ALIVE:
                return method(request, **keywords)
            kind = next(self._kinds)
            with self._log.open("a", encoding="utf-8") as log:
                log.write(f"{name}: {kind}\n")
            if kind == "request lost":
                raise Lost
            if kind == "late":
                for other, old in reversed(self._earlier):
                    # a registration is no call for work: nothing waits in it
                    if other == name:
                        method(old, timeout=1.0)
            if kind == "twice":
                method(request, **keywords)
            reply = method(request, **keywords)
            self._earlier = [*self._earlier[-3:], (name, request)]
            if kind == "reply lost":
                raise Lost
            return reply

        return call


def disturb(seed: str, log: Path) -> None:
    """Let every connection of this process disturb its calls."""
    plain = Connection.connect_to_server
    order = list(KINDS)
    random.Random(seed).shuffle(order)
    kinds = itertools.cycle(order)

    def connect(self: Connection) -> None:
        plain(self)
        self.stub = BadStub(self.stub, kinds, log)
        self.life_stub = BadStub(self.life_stub, kinds, log)

    Connection.connect_to_server = connect  # type: ignore[method-assign]
