"""A unit: work that one executor does at once. Units are what the server hands out and the wire carries."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from fedscale_ext.transport.leases import ExecutorProcess


@dataclass(frozen=True)
class Unit:
    """Work that one executor does at once.

    Attributes:
        id: Number of the unit; later units have greater numbers.
        event: Name of its kind of work.
        header: The JSON part of its message.
        models: Keys of the models whose states it needs.
        sections: Makes further sections of its message, by name, except those that it is given. It is called for every
            attempt, from any thread.
        cached: Names of sections that a process has in its cache, and their labels there. Any thread may call it. A
            unit goes to the process that has most.

    """

    id: int
    event: str
    header: Mapping[str, Any]
    models: tuple[str, ...]
    sections: Callable[[Container[str]], Mapping[str, bytes]] | None = None
    cached: Callable[[ExecutorProcess], Mapping[str, str]] | None = None


@dataclass(frozen=True)
class Attempt:
    """A unit that an executor runs, and the number of this attempt, counted from 1."""

    unit: Unit
    number: int


@dataclass(frozen=True)
class Dropped:
    """The result of a unit that was given up, with the reason."""

    reason: str
