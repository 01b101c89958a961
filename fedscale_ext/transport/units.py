"""A unit: work that one executor does at once. Units are what the server hands out and the wire carries."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, Unpack

from fedscale_ext.transport.leases import ExecutorProcess


class UnitRequest(TypedDict, total=False):
    """What the planner of a unit asks for, as JSON. Each kind of work reads the fields that it needs."""

    model: str  # pool key; of an evaluation, also that of several members or of personal versions
    members: list[str]  # pool keys whose mean output is tested
    clients: list[int]  # numbers of the unit's clients
    items: list[dict[str, Any]]  # work items as JSON, one per client
    objective: Mapping[str, Any]  # the method's objective, where no items have it
    overrides: Mapping[str, Any]  # settings of these clients, where no items have them
    learning_rate: float
    cohort: int  # clients that train side by side, at most
    sizes: list[int]  # cohort sizes to measure
    # training: what the answer has
    sum: bool  # the weighted sum of the clients' changes
    states: bool  # the state of each client
    norms: bool  # the norm of each client's change
    clip_norm: float | None  # differential privacy clips changes to this norm
    tensors: list[str]  # kinds of tensors that come for the clients in addition to models
    # tests: what else the answer has
    statistics: bool  # BatchNorm's statistics are those of the client's training samples
    mask_test: bool  # figures with masked logits, too
    classes: int  # confusion matrices of this many classes
    auc: list[int]  # AUC of these clients


class UnitHeader(UnitRequest, total=False):
    """The JSON part of a unit's message: the request, and what the server adds to it."""

    job: str  # identity of the server process
    unit: int  # number of the unit
    round: int | str  # from 1; a test that trains puts its name here, so that its random streams are others
    attempt: int  # from 1
    models: Mapping[str, Any]  # specs, and states unless the executor has them, by pool key
    cached: Mapping[str, str]  # labels of sections that the executor has, by name


@dataclass(frozen=True)
class Unit:
    """Work that one executor does at once.

    Attributes:
        id: Number of the unit; later units have greater numbers.
        event: Name of its kind of work.
        header: The JSON part of its message, before the server adds the attempt and models.
        models: Keys of the models whose states it needs.
        sections: Makes further sections of its message, by name, except those that it is given. It is called for every
            attempt, from any thread.
        cached: Names of sections that a process has in its cache, and their labels there. Any thread may call it. A
            unit goes to the process that has most.

    """

    id: int
    event: str
    header: UnitHeader
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


class MakeUnit(Protocol):
    """Makes a unit of the present round; other arguments are those of :class:`Unit`."""

    def __call__(
        self,
        event: str,
        models: Sequence[str],
        sections: Callable[[Container[str]], Mapping[str, bytes]] | None = None,
        cached: Callable[[ExecutorProcess], Mapping[str, str]] | None = None,
        **request: Unpack[UnitRequest],
    ) -> Unit:
        """Return a unit that needs the states of ``models``."""
