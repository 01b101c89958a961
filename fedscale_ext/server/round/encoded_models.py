"""Models on the wire: each state is serialised once, and sent once to each executor."""

from fedscale_ext.core.types import State
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.transport import wire
from fedscale_ext.transport.leases import ExecutorProcess


class EncodedModels:
    """Serialises models on demand, and keeps what it serialised for the next executor.

    Args:
        pool: The models.

    """

    def __init__(self, pool: ModelPool) -> None:
        self._pool = pool
        self._sections: dict[str, tuple[State, bytes]] = {}  # by key: the state that was serialised, and its section

    def section(self, key: str) -> bytes:
        """Return the state of the model of a key, serialised; that of a transient model is not kept."""
        model = self._pool[key]
        if model.transient:
            return wire.tensors_to_bytes(model.state)
        state, section = self._sections.get(key, (None, b""))
        if state is not model.state:  # states are replaced, never written to
            section = wire.tensors_to_bytes(model.state)
            self._sections[key] = model.state, section
        return section


class SentModels:
    """The states that a process surely has: those of units that it has done. A reply may have been lost.

    Args:
        process: The process.

    """

    def __init__(self, process: ExecutorProcess) -> None:
        self.process = process
        self.offered: dict[str, int] = {}  # with the unit that it holds: model key -> version
        self._versions: dict[str, int] = {}

    def holds(self, process: ExecutorProcess, key: str, version: int) -> bool:
        """Return whether ``process`` is this process, and has this version of the model of a key."""
        return process == self.process and self._versions.get(key) == version

    def confirm(self, process: ExecutorProcess) -> None:
        """Note that the process has the states that came with the unit that it has done."""
        if process == self.process:
            self._versions.update(self.offered)
