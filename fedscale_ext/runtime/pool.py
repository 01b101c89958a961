"""The aggregator's models, each serialised once per change of its state."""

from collections.abc import Iterator

from fedscale_ext import models
from fedscale_ext.models.spec import ModelSpec
from fedscale_ext.runtime import wire
from fedscale_ext.runtime.work import Model, State


class ModelPool:
    """Models by key, in the order in which they were added."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._encoded: dict[str, tuple[int, bytes]] = {}

    def add(self, key: str, spec: ModelSpec, state: State) -> Model:
        """A new model; its cost is measured here. Raises ValueError for a key that is taken."""
        if key in self._models:
            raise ValueError(f"the pool has a model {key!r} already")
        self._models[key] = Model(key, spec, state, models.cost(spec))
        return self._models[key]

    def update(self, key: str, state: State) -> None:
        """Give a model a new state; executors will be sent it before they use the model again."""
        model = self._models[key]
        model.state = state
        model.version += 1

    def clear(self) -> None:
        """Forget every model."""
        self._models.clear()
        self._encoded.clear()

    def encoded(self, key: str) -> bytes:
        """The state of a model as a section of the wire, serialised once per version."""
        model = self._models[key]
        version, section = self._encoded.get(key, (-1, b""))
        if version != model.version:
            section = wire.tensors_to_bytes(model.state)
            self._encoded[key] = model.version, section
        return section

    def __getitem__(self, key: str) -> Model:
        return self._models[key]

    def __contains__(self, key: str) -> bool:
        return key in self._models

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def newest(self) -> Model:
        """The model that was added last."""
        return next(reversed(self._models.values()))
