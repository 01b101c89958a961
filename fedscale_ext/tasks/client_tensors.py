"""Tensors that clients receive in addition to their models and return in addition to their updates.

A device would keep some of them itself: control variates, masks, personal layers. Here the server's side keeps them in
files (:class:`StoredTensors`). A unit's message has a section of them for each client, and the answer has the next
ones. Executors keep the sections of :class:`ClientState`; a unit's message names those that its executor has, and
leaves them out.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from fedscale_ext.core.types import State, WorkItem
from fedscale_ext.tasks.answers.update_checks import checked_tensors
from fedscale_ext.tasks.client_files import CachedAt, ClientFiles
from fedscale_ext.transport import wire
from fedscale_ext.transport.leases import ExecutorProcess


def section_name(kind: str, index: int | str) -> str:
    """Return the name of the section of a unit's client ``index``, in either direction.

    ``kind`` is that of :class:`ClientTensors`.
    """
    return f"{kind}/{index}"


def cache_label(header: Mapping[str, Any], section: str) -> str:
    """Return the label by which an executor finds a section of an answer that it sent; ``header`` is the answer's."""
    return "/".join(str(header[name]) for name in ("job", "unit", "attempt")) + f"/{section}"


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
    tested = False  # whether clients receive them for tests of their personal models, too

    def concerns(self, items: Sequence[WorkItem]) -> bool:
        """Whether the clients of a round receive such tensors, or return some."""
        return True

    def begin(self, items: Sequence[WorkItem]) -> None:
        """Prepare for the items of a round, before clients receive them; nothing by default."""

    def traffic_bytes(self, item: WorkItem) -> int:
        """Return the bytes in each direction that count as traffic in addition to the item's own; none by default."""
        return 0

    def template(self, key: str) -> State:
        """Return the names, shapes and types of the tensors that clients of a model return."""
        raise NotImplementedError

    def outgoing(self, item: WorkItem) -> State | None:
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

    def sections(self, items: Sequence[WorkItem], without: Container[str] = ()) -> dict[str, bytes]:
        """Return the sections with the tensors that a unit's clients receive. Any thread may call it.

        Args:
            items: The unit's items.
            without: Names of sections to leave out.

        """
        names = {section_name(self.kind, index): item for index, item in enumerate(items)}
        sections = {name: self.section(item) for name, item in names.items() if name not in without}
        return {name: section for name, section in sections.items() if section is not None}

    def set_cached(self, item: WorkItem, where: CachedAt) -> None:
        """Note which executor has the tensors just taken of a client in its cache; nothing by default."""

    def cached(self, items: Sequence[WorkItem], process: ExecutorProcess) -> dict[str, str]:
        """Return the names of the sections that a process has in its cache, and their labels there; none by default.

        Any thread may call it.
        """
        return {}

    def section(self, item: WorkItem) -> bytes | None:
        """Return the section with the tensors that a client receives, None for none. Any thread may call it."""
        state = self.outgoing(item)
        return None if state is None else wire.tensors_to_bytes(state)

    def checked(self, item: WorkItem, section: wire.Section | None) -> State:
        """Read the tensors that a client returned; raises Rejected unless they are like the template."""
        return checked_tensors(section, self.template(item.model))

    def end_round(self) -> None:
        """End the round: the tensors taken count from now on."""

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return the state for a checkpoint: tensors and JSON; none by default."""
        return {}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore the result of :meth:`state`."""


class ReturnedTensors(ClientTensors):
    """Tensors that clients only return, as ``returned`` of their result, such as logits.

    ``of`` has those of the round's clients, by client. A subclass describes them in :meth:`template`, and checks them
    if they can be wrong.
    """

    kind: ClassVar[str] = "returned"

    def __init__(self) -> None:
        self.of: dict[int, State] = {}

    def begin(self, items: Sequence[WorkItem]) -> None:  # noqa: D102
        self.of.clear()

    def outgoing(self, item: WorkItem) -> State | None:  # noqa: D102
        return None

    def take(self, round: int, item: WorkItem, new: State) -> None:  # noqa: D102
        self.of[item.client] = new


class ReadTensors(dict[str, Tensor]):
    """Tensors that were read from a section, which goes with them to whoever writes a file of it."""

    def __init__(self, tensors: State, section: wire.Section) -> None:
        super().__init__(tensors)
        self.section = section


class StoredTensors(ClientTensors):
    """Tensors of clients that stay on the server's side from round to round, in ``files``."""

    def __init__(self, folder: Path, clients: int) -> None:
        self.files = ClientFiles(folder, clients)

    def end_round(self) -> None:  # noqa: D102
        self.files.end_round()

    def state(self) -> tuple[State, dict[str, Any]]:  # noqa: D102
        return {f"rounds/{key}": rounds for key, rounds in self.files.state().items()}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore the result of :meth:`state`; UserError where a client's file is missing."""
        begin = "rounds/"
        rounds = {name[len(begin) :]: tensor for name, tensor in tensors.items() if name.startswith(begin)}
        self.files.load_state(rounds)


class ClientState(StoredTensors):
    """Tensors that each client keeps from round to round, such as masks or personal layers.

    A client receives them as ``conf.client_state``, and returns the next ones as ``client_state`` of its result.

    Args:
        folder: the job's folder.
        clients: number of clients.
        templates: names, shapes and types of the tensors, by key of the model that clients train with them.
        start: returns the tensors of a client before its first round; None: they are empty then.

    """

    kind: ClassVar[str] = "client_state"
    tested = True

    def __init__(
        self,
        folder: Path,
        clients: int,
        templates: Mapping[str, State],
        start: Callable[[int], State] | None = None,
    ) -> None:
        super().__init__(folder / self.kind, clients)
        self._templates, self._start = templates, start
        self._heads: dict[str, bytes] = {}

    def template(self, key: str) -> State:  # noqa: D102
        return self._templates[key]

    def outgoing(self, item: WorkItem) -> State | None:  # noqa: D102
        stored = self.files.read(item.model, item.client)
        return self._start(item.client) if stored is None and self._start is not None else stored

    def section(self, item: WorkItem) -> bytes | None:  # noqa: D102
        stored = self.files.section(item.model, item.client)  # a file is a section: it is not read and written anew
        return super().section(item) if stored is None else stored

    def checked(self, item: WorkItem, section: wire.Section | None) -> State:  # noqa: D102
        tensors = super().checked(item, section)
        head = self._head(item.model)
        as_written = section is not None and section[: len(head)] == head
        return ReadTensors(tensors, section) if section is not None and as_written else tensors

    def _head(self, key: str) -> bytes:
        """Return the beginning of a section of a model's tensors: their names, shapes and types, as we write them."""
        if key not in self._heads:
            content = wire.tensors_to_bytes(self.template(key))
            self._heads[key] = content[: len(content) - sum(tensor.nbytes for tensor in self.template(key).values())]
        return self._heads[key]

    def take(self, round: int, item: WorkItem, new: State) -> None:  # noqa: D102
        section = new.section if isinstance(new, ReadTensors) else None
        self.files.write(round, item.model, item.client, new, section)

    def set_cached(self, item: WorkItem, where: CachedAt) -> None:  # noqa: D102
        self.files.set_cached(item.model, item.client, where)

    def cached(self, items: Sequence[WorkItem], process: ExecutorProcess) -> dict[str, str]:  # noqa: D102
        entries = [self.files.cached_at(item.model, item.client) for item in items]
        return {
            section_name(self.kind, index): entry[1]
            for index, entry in enumerate(entries)
            if entry is not None and entry[0] == process
        }


class SharedTensors(ClientTensors):
    """Tensors that all clients of a round receive alike, such as public samples. Clients return nothing.

    A message holds them once. A client finds them in ``conf.shared_tensors``. A method sets them before each round.

    Args:
        tested: whether clients receive them for tests of their personal models, too.

    """

    kind: ClassVar[str] = "shared"

    def __init__(self, *, tested: bool = False) -> None:
        self._section = b""
        self.tested = tested

    def set_tensors(self, tensors: State) -> None:
        """Set the tensors that clients receive from now on."""
        self._section = wire.tensors_to_bytes(tensors)

    @property
    def tensors(self) -> State:
        """The tensors that clients receive now."""
        return wire.bytes_to_tensors(self._section) if self._section else {}

    def template(self, key: str) -> State:  # noqa: D102
        return {}

    def sections(self, items: Sequence[WorkItem], without: Container[str] = ()) -> dict[str, bytes]:  # noqa: D102
        return {section_name(self.kind, 0): self._section}

    @property
    def in_each_message(self) -> int:  # noqa: D102
        return len(self._section)

    def checked(self, item: WorkItem, section: wire.Section | None) -> State:  # noqa: D102
        return {}

    def take(self, round: int, item: WorkItem, new: State) -> None:  # noqa: D102
        return None


class ReceivedTensors(ClientTensors):
    """Tensors that each client only receives, as ``conf.received_tensors``, such as what the others know.

    Args:
        of: returns the tensors of a client as they are now; any thread may call it.
        most_bytes: of one client's tensors.

    """

    kind: ClassVar[str] = "received"

    def __init__(self, of: Callable[[int], State], most_bytes: int) -> None:
        self._of, self._most_bytes = of, most_bytes

    def template(self, key: str) -> State:  # noqa: D102
        return {}

    def outgoing(self, item: WorkItem) -> State | None:  # noqa: D102
        return self._of(item.client)

    def most(self, key: str) -> int:  # noqa: D102
        return self._most_bytes

    def checked(self, item: WorkItem, section: wire.Section | None) -> State:  # noqa: D102
        return {}

    def take(self, round: int, item: WorkItem, new: State) -> None:  # noqa: D102
        return None
