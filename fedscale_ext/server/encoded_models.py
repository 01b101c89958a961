"""The models of the pool as sections of messages, each serialised once per change of its state."""

from fedscale_ext.core.types import State
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.transport import wire


class EncodedModels:
    """Serialises the models of ``pool`` on demand, and keeps what it serialised for the next executor."""

    def __init__(self, pool: ModelPool) -> None:
        self._pool = pool
        self._sections: dict[str, tuple[State, bytes]] = {}  # by key: the state that was serialised, and its section

    def section(self, key: str) -> bytes:
        """The state of the model of a key; that of a transient model is not kept."""
        model = self._pool[key]
        if model.transient:
            return wire.tensors_to_bytes(model.state)
        state, section = self._sections.get(key, (None, b""))
        if state is not model.state:  # states are replaced, never written to
            section = wire.tensors_to_bytes(model.state)
            self._sections[key] = model.state, section
        return section
