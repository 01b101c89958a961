"""The models of one executor: states as they were sent, and what is built once to train and test them."""

from collections.abc import Mapping
from typing import Any

import torch

from fedscale_ext import models
from fedscale_ext.models.spec import ModelSpec
from fedscale_ext.models.stacked import Mapped, Stacked, stacked
from fedscale_ext.runtime import wire
from fedscale_ext.runtime.resident import Cohort, Resident, Start, channels_last_helps
from fedscale_ext.runtime.work import State


class Workbench:
    """Keeps the newest state of each pool key, one resident module and one cohort per spec."""

    def __init__(self, device: torch.device, precision: str) -> None:
        self.device = device
        self._layout = {"channels_last": channels_last_helps(device, precision)}
        self._states: dict[str, tuple[int, ModelSpec, State]] = {}
        self._starts: dict[str, tuple[int, Start]] = {}
        self._residents: dict[ModelSpec, Resident] = {}
        self._networks: dict[ModelSpec, Stacked | Mapped | None] = {}
        self._cohorts: dict[ModelSpec, Cohort] = {}

    def keep(self, header: Mapping[str, Any], sections: Mapping[str, bytes]) -> None:
        """Remember the states that came along; an older version of the same model is let go."""
        for key, entry in header["models"].items():
            if key in sections:
                spec = ModelSpec.from_json(entry["spec"])
                state = wire.bytes_to_tensors(sections[key])
                on_device = {name: tensor.to(self.device) for name, tensor in state.items()}
                self._states[key] = entry["version"], spec, on_device
            elif self._states.get(key, (None,))[0] != entry["version"]:
                raise wire.WireError(f"version {entry['version']} of model {key!r} was not sent to this executor")

    def spec(self, key: str) -> ModelSpec:
        """The spec of a pool key."""
        return self._states[key][1]

    def state(self, key: str) -> State:
        """The state of a pool key as it was sent, on the training device."""
        return self._states[key][2]

    def module(self, key: str) -> torch.nn.Module:
        """The resident module of a model's spec, holding that model's state as it was sent."""
        version, spec, state = self._states[key]
        if spec not in self._residents:
            self._residents[spec] = Resident(models.build(spec), self.device, **self._layout)
        resident = self._residents[spec]
        known, start = self._starts.get(key, (None, None))
        if known != version or start is None:
            start = resident.start(state)
            self._starts[key] = version, start
        resident.restore(start)
        return resident.module

    def cohort(self, key: str, clients: int) -> Cohort | None:
        """A cohort of a model's spec for at least ``clients`` clients, each at that model's state; None
        where the model cannot train in cohorts."""
        _, spec, state = self._states[key]
        if spec not in self._networks:
            self._networks[spec] = stacked(models.build(spec).to(self.device), spec["input_shape"])
        network = self._networks[spec]
        if network is None:
            return None
        if spec not in self._cohorts or self._cohorts[spec].clients < clients:
            module = models.build(spec).to(self.device)
            self._cohorts[spec] = Cohort(network, module, spec["input_shape"], clients, self.device, **self._layout)
        self._cohorts[spec].restore(state)
        return self._cohorts[spec]
