"""The aggregator's models by key, and the parts that are cut out of them."""

from collections.abc import Iterator

from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import IndexMap, Model, Part, State
from fedscale_ext.submodels.coverage import coverage, extract


class ModelPool:
    """Models by key, in the order in which they were added."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}

    def add(self, key: str, spec: ModelSpec, state: State) -> Model:
        """A new model; its cost is measured here. Raises ValueError for a key that is taken, or holds a "+" or "@"."""
        if "+" in key or "@" in key:
            raise ValueError(f"{key!r} cannot be a model's key: a plus sign joins the keys of an ensemble, @ ends them")
        if key in self._models:
            raise ValueError(f"the pool has a model {key!r} already")
        self._models[key] = Model(key, spec, state, models.cost(spec))
        return self._models[key]

    def add_part(
        self, key: str, reference: str, spec: ModelSpec, channels: IndexMap, *, transient: bool = False
    ) -> Model:
        """A new model that holds these channels of another one; ``spec`` is that of its size.

        It may lack tensors of its reference (be less deep): those that the layout of ``spec`` has are covered.
        A ``transient`` one stays until :meth:`drop_transient`. ValueError where it has a tensor that the reference
        lacks.
        """
        beyond = sorted(models.layout(spec).keys() - models.layout(self._models[reference].spec).keys())
        if beyond:
            raise ValueError(f"{key!r} is no part of {reference!r}, which has no tensor {beyond[0]!r}")
        model = self.add(key, spec, {})
        model.transient = transient
        self.place_part(key, reference, channels)
        return model

    def replace(self, key: str, spec: ModelSpec, state: State) -> Model:
        """Put another model in the place of one; it is a part of none."""
        version = self._models[key].version
        self._models[key] = Model(key, spec, state, models.cost(spec), version + 1)
        return self._models[key]

    def place_part(self, key: str, reference: str, channels: IndexMap) -> None:
        """Let a part hold other channels, of the same numbers."""
        model = self._models[key]
        names = models.layout(model.spec)
        covered = coverage(models.layout(self._models[reference].spec), channels) if channels else dict.fromkeys(names)
        model.part = Part(reference, channels, {name: covered[name] for name in names})
        self._cut(model)

    def _cut(self, model: Model) -> None:
        assert model.part is not None
        whole = self._models[model.part.reference]
        held = {name: tensor for name, tensor in whole.state.items() if name in model.part.covered}
        # whole tensors are shared: states are replaced, never written to
        channels = model.part.channels
        model.state = extract(held, models.layout(whole.spec), channels) if channels else held
        model.version += 1

    def update(self, key: str, state: State) -> None:
        """Give a model a new state; executors will be sent it before they use the model again. So are its parts."""
        self.amend(key, state)
        for model in self._models.values():
            if model.part is not None and model.part.reference == key:
                self._cut(model)

    def amend(self, key: str, state: State) -> None:
        """Give this one model a new state: its parts stay as they are, and a part no longer follows its reference
        until that is updated."""
        model = self._models[key]
        model.state = state
        model.version += 1

    def drop_transient(self) -> None:
        """Forget the models that are of one round."""
        self._models = {key: model for key, model in self._models.items() if not model.transient}

    def host(self, key: str) -> ModelSpec:
        """The spec of the network that runs a model on executors: the supernet of which it is a part, or its own."""
        model = self._models[key]
        whole = self._models[model.whole].spec
        return whole if models.searched(whole) else model.spec

    def clear(self) -> None:
        """Forget every model."""
        self._models.clear()

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
