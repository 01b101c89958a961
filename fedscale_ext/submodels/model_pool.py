"""The aggregator's models by key, and the submodels (parts) that are extracted from them."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from fedscale_ext import models
from fedscale_ext.core.errors import UserError, did_you_mean
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import IndexMap, Model, Part, State
from fedscale_ext.models.registry import tied_names
from fedscale_ext.submodels.extraction import coverage, extract


class ModelPool:
    """Models by key, in the order in which they were added.

    Args:
        method: Name of the method that fills it, for errors.

    """

    def __init__(self, method: str = "of the job") -> None:
        self._method = method
        self._models: dict[str, Model] = {}

    def add(self, key: str, spec: ModelSpec, state: State) -> Model:
        """Add a model and count its cost.

        Args:
            key: Its key.
            spec: Its architecture.
            state: Its tensors.

        Returns:
            The new model.

        Raises:
            ValueError: If the key is in use, or contains a "+" or "@".

        """
        if "+" in key or "@" in key:
            raise ValueError(f"{key!r} cannot be a model's key: a plus sign joins the keys of an ensemble, @ ends them")
        if key in self._models:
            raise ValueError(f"the pool has a model {key!r} already")
        self._models[key] = Model(key, spec, state, models.cost(spec))
        return self._models[key]

    def add_part(
        self, key: str, reference: str, spec: ModelSpec, channels: IndexMap, *, transient: bool = False
    ) -> Model:
        """Add a model that holds some channels of another one.

        Args:
            key: Its key.
            reference: Key of the whole model.
            spec: Its architecture. It may lack tensors of the reference, if it is less deep.
            channels: Its channels of each of the reference's groups.
            transient: Whether :meth:`drop_transient` removes it.

        Returns:
            The new model.

        Raises:
            ValueError: If it has a tensor that the reference lacks.

        """
        beyond = sorted(models.layout(spec).keys() - models.layout(self._models[reference].spec).keys())
        if beyond:
            raise ValueError(f"{key!r} is no part of {reference!r}, which has no tensor {beyond[0]!r}")
        model = self.add(key, spec, {})
        model.transient = transient
        self.set_channels(key, reference, channels)
        return model

    def replace(self, key: str, spec: ModelSpec, state: State) -> Model:
        """Replace the model of a key by another one, which is no part of a model."""
        version = self._models[key].version
        self._models[key] = Model(key, spec, state, models.cost(spec), version + 1)
        return self._models[key]

    def set_channels(self, key: str, reference: str, channels: IndexMap) -> None:
        """Give a part other channels of its reference, of the same numbers."""
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
        """Set a model's state, and extract its parts anew; executors receive these before they use the models again."""
        self.amend(key, state)
        for model in self._models.values():
            if model.part is not None and model.part.reference == key:
                self._cut(model)

    def amend(self, key: str, state: State) -> None:
        """Set the state of only this model.

        Its parts stay unchanged. If it is a part itself, it differs from its reference until that is updated. Further
        names of a tensor (tied weights) get what the first one has: methods may treat only that as a parameter, and
        the network would load the last one.

        Raises:
            UserError: If the state lacks a tensor of the model, or has another name, shape or dtype.

        """
        model = self._models[key]
        self._check_fits(model, state)
        tied = {name: state[first] for name, first in tied_names(model.spec).items() if {name, first} <= state.keys()}
        model.state = {**state, **tied} if tied else state  # the same object is encoded once
        model.version += 1

    def _check_fits(self, model: Model, state: Any) -> None:
        """Compare a new state's names, shapes and dtypes with those of the state that it replaces."""
        if not isinstance(state, Mapping):
            fault = f"is a value of type {type(state).__name__}; model {model.key!r} takes a dict of tensors"
        elif missing := next((name for name in model.state if name not in state), None):
            fault = f"lacks {missing!r} of model {model.key!r}; pass all of its tensors"
        elif len(state) > len(model.state):
            other = next(name for name in state if name not in model.state)
            fault = f"has {other!r}, which model {model.key!r} lacks{did_you_mean(other, model.state)}"
        else:
            faults = (_misfit(model.key, name, state[name], tensor) for name, tensor in model.state.items())
            fault = next(filter(None, faults), "")
        if fault:
            raise UserError(f"the state that method {self._method} passes to pool.update {fault}")

    def drop_transient(self) -> None:
        """Remove the models that exist for one round only."""
        self._models = {key: model for key, model in self._models.items() if not model.transient}

    def host(self, key: str) -> ModelSpec:
        """Return the spec of the network that runs a model on executors: its own, or that of its supernet."""
        model = self._models[key]
        whole = self._models[model.whole].spec
        return whole if models.searched(whole) else model.spec

    def state(self) -> tuple[State, list[dict[str, Any]]]:
        """Return all models for a checkpoint: tensors by key and name, and what they are as JSON."""
        tensors = {f"{model.key}/{name}": tensor for model in self for name, tensor in model.state.items()}
        entries = [
            {
                "key": model.key,
                "spec": model.spec.to_json(),
                "version": model.version,
                "part": None if model.part is None else _part_to_json(model.part),
            }
            for model in self
        ]
        return tensors, entries

    def load_state(self, tensors: State, data: list[dict[str, Any]]) -> None:
        """Replace all models by those of :meth:`state`."""
        self._models.clear()
        for entry in data:
            key, spec, part = entry["key"], ModelSpec.from_json(entry["spec"]), entry["part"]
            if part is None:
                model = self.add(key, spec, {})
            else:
                channels = {group: torch.tensor(index) for group, index in part["channels"].items()}
                model = self.add_part(key, part["reference"], spec, channels)
            begin = f"{key}/"
            model.state = {name[len(begin) :]: tensor for name, tensor in tensors.items() if name.startswith(begin)}
            model.version = entry["version"]

    def __getitem__(self, key: str) -> Model:
        return self._models[key]

    def __contains__(self, key: str) -> bool:
        return key in self._models

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def newest(self) -> Model:
        """Return the model that was added last."""
        return next(reversed(self._models.values()))


def _misfit(key: str, name: str, new: Any, old: torch.Tensor) -> str | None:
    """Return why a new tensor cannot replace one of model ``key``; None if it can."""
    if not isinstance(new, torch.Tensor):
        return f"has a value of type {type(new).__name__} as {name!r} of model {key!r}, and a tensor belongs there"
    if new.shape != old.shape:
        shapes = list(new.shape), list(old.shape)
        return f"has {name!r} with shape {shapes[0]}, and model {key!r} has it with shape {shapes[1]}"
    if new.dtype != old.dtype:
        return f"has {name!r} in {new.dtype}, and model {key!r} has it in {old.dtype}; convert it"
    return None


def _part_to_json(part: Part) -> dict[str, Any]:
    return {"reference": part.reference, "channels": {group: index.tolist() for group, index in part.channels.items()}}
