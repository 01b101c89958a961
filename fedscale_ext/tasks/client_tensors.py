"""What clients are handed beside their models and hand back with their updates, kept on the aggregator's side between.

A device would keep such tensors itself: control variates, masks, personal layers. Here whoever trains the client is
handed them as sections of the unit's message, one per client, and its result brings the new ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fedscale_ext.core.types import State, WorkItem
from fedscale_ext.tasks.client_files import ClientFiles
from fedscale_ext.tasks.update_checks import checked_tensors
from fedscale_ext.transport import wire


def section_name(kind: str, index: int) -> str:
    """Return the name of the section of a unit's client ``index``, in either direction.

    ``kind`` is that of :class:`ClientTensors`.
    """
    return f"{kind}/{index}"


def read_client_tensors(kinds: Iterable[str], sections: Mapping[str, wire.Section]) -> dict[str, dict[int, State]]:
    """Read the tensors that came with a unit, by kind and index of the client.

    Clients without a section have no tensors yet.
    """
    states: dict[str, dict[int, State]] = {}
    for kind in kinds:
        begin = section_name(kind, 0).removesuffix("0")
        client_sections = {
            name.removeprefix(begin): section for name, section in sections.items() if name.startswith(begin)
        }
        states[kind] = {int(index): wire.bytes_to_tensors(section) for index, section in client_sections.items()}
    return states


CONTROL_VARIATES = "variate"  # the kind of SCAFFOLD's and FedDyn's tensors of clients


class ClientTensors:
    """One kind of such tensors: base of SCAFFOLD's variates, and of what methods keep (hook ``client_tensors``)."""

    kind: ClassVar[str]

    def __init__(self, folder: Path, clients: int) -> None:
        self.files = ClientFiles(folder, clients)

    def concerns(self, items: Sequence[WorkItem]) -> bool:
        """Whether the clients of a round receive such tensors, or return some."""
        return True

    def begin(self, items: Sequence[WorkItem]) -> None:
        """Prepare for the items of a round, before clients receive them; nothing by default."""

    def counted(self, item: WorkItem) -> int:
        """Return the bytes in each direction that count as traffic beside the item's own; none by default."""
        return 0

    def template(self, key: str) -> State:
        """Return the names, shapes and types of the tensors that clients of a model return."""
        raise NotImplementedError

    def handed(self, item: WorkItem) -> State | None:
        """Return the tensors that a client receives, None for none. Any thread may call it."""
        raise NotImplementedError

    def take(self, round: int, item: WorkItem, new: State) -> None:
        """Take the tensors that a client returned; they count when the round is over."""
        raise NotImplementedError

    def most(self, key: str) -> int:
        """Return the bytes that a client of a model adds to a message, at most."""
        return sum(tensor.nbytes for tensor in self.template(key).values())

    @property
    def in_each_message(self) -> int:
        """Return the bytes added to each message, whatever the number of its clients; none by default."""
        return 0

    def sections(self, items: Sequence[WorkItem]) -> dict[str, bytes]:
        """Return the sections with the tensors that a unit's clients receive. Any thread may call it."""
        states = {section_name(self.kind, index): self.handed(item) for index, item in enumerate(items)}
        return {name: wire.tensors_to_bytes(state) for name, state in states.items() if state is not None}

    def checked(self, item: WorkItem, section: wire.Section | None) -> State:
        """Read the tensors that a client returned; raises Rejected unless they are like the template."""
        return checked_tensors(section, self.template(item.model))

    def settle(self) -> None:
        """End the round: the tensors taken count from now on."""
        self.files.settle()

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return the state for a checkpoint: tensors and JSON."""
        return {f"rounds/{key}": rounds for key, rounds in self.files.state().items()}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore the result of :meth:`state`; UserError where a client's file is missing."""
        begin = "rounds/"
        rounds = {name[len(begin) :]: tensor for name, tensor in tensors.items() if name.startswith(begin)}
        self.files.load_state(rounds)


class Returned(ClientTensors):
    """What clients hand back beside their states and nobody keeps for them: ``returned`` of a client's result.

    A subclass says in :meth:`template` what that is, checks it where it can be wrong, and takes it.
    """

    kind: ClassVar[str] = "returned"

    def handed(self, item: WorkItem) -> State | None:  # noqa: D102
        return None


class OwnTensors(ClientTensors):
    """What each client keeps for itself (masks, personal layers): handed out as it was handed in.

    ``folder``: the job's; ``templates``: names, shapes and types, by key of the model that clients train with it. A
    client finds it in ``conf.own`` and gives the new one as ``own`` of its result; here ``files`` have it.
    """

    kind: ClassVar[str] = "own"

    def __init__(self, folder: Path, clients: int, templates: Mapping[str, State]) -> None:
        super().__init__(folder / self.kind, clients)
        self._templates = templates

    def template(self, key: str) -> State:  # noqa: D102
        return self._templates[key]

    def handed(self, item: WorkItem) -> State | None:  # noqa: D102
        return self.files.read(item.model, item.client)

    def take(self, round: int, item: WorkItem, new: State) -> None:  # noqa: D102
        self.files.write(round, item.model, item.client, new)


class OwnTensorsFrom(OwnTensors):
    """Tensors that each client keeps for itself, and begins with.

    ``start`` returns those of a client that has handed in none yet.
    """

    def __init__(
        self, folder: Path, clients: int, templates: Mapping[str, State], start: Callable[[int], State]
    ) -> None:
        super().__init__(folder, clients, templates)
        self._start = start

    def handed(self, item: WorkItem) -> State | None:  # noqa: D102
        stored = super().handed(item)
        return self._start(item.client) if stored is None else stored


class Shared(ClientTensors):
    """Tensors that all clients of a round receive alike, such as public samples. Clients return nothing.

    A message holds them once. A client finds them in ``conf.shared``. A method sets them before each round.
    """

    kind: ClassVar[str] = "shared"

    def __init__(self, folder: Path, clients: int) -> None:
        super().__init__(folder / self.kind, clients)
        self._section = b""

    def set_tensors(self, tensors: State) -> None:
        """Set the tensors that clients receive from now on."""
        self._section = wire.tensors_to_bytes(tensors)

    def template(self, key: str) -> State:  # noqa: D102
        return {}

    def sections(self, items: Sequence[WorkItem]) -> dict[str, bytes]:  # noqa: D102
        return {section_name(self.kind, 0): self._section}

    @property
    def in_each_message(self) -> int:  # noqa: D102
        return len(self._section)

    def checked(self, item: WorkItem, section: wire.Section | None) -> State:  # noqa: D102
        return {}

    def take(self, round: int, item: WorkItem, new: State) -> None:  # noqa: D102
        return None
