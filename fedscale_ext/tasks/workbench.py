"""The models of one executor: states as they were sent, and what is built once to train and test them."""

import logging
import math
from collections.abc import Sequence
from typing import TypeVar

import torch

from fedscale_ext import models
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State
from fedscale_ext.models.stacked.network import Mapped, Stacked, stacked
from fedscale_ext.models.supernet.family import Searchable
from fedscale_ext.tasks.unit_planning import in_parts
from fedscale_ext.training.cuda_graph import recorded_clients
from fedscale_ext.training.factored import factorable
from fedscale_ext.training.resident import Cohort, Resident, Start, channels_last_helps
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import UnitHeader
from fedscale_ext.util.machine_errors import of_machine

T = TypeVar("T")
MOST_ROWS = 1024  # of factors: the smallest layers that have some are about as large on a side


class _StoredState:
    """A state as it was sent: the floating entries in the memory order of the resident module of ``host``."""

    def __init__(self, version: int, spec: ModelSpec, host: ModelSpec, transient: bool, start: Start) -> None:
        self.version, self.spec, self.host, self.transient, self.start = version, spec, host, transient, start


class Workbench:
    """Keeps the newest state of each pool key, one resident module and one cohort per spec.

    Subspaces and paths of a supernet, of which there are more than memory holds, all run in the supernet's module.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._layout = {"channels_last": channels_last_helps(device)}
        self._stored: dict[str, _StoredState] = {}
        self._residents: dict[ModelSpec, Resident] = {}
        self._networks: dict[ModelSpec, Stacked | Mapped | None] = {}
        self._cohorts: dict[tuple[ModelSpec, bool, str | None], Cohort] = {}

    def keep(self, header: UnitHeader, sections: dict[str, wire.Section]) -> None:
        """Store the states that came with a unit.

        They replace older versions of their models. Each section is dropped as soon as it is read. Transient states of
        earlier units are dropped, too.
        """
        self._stored = {key: stored for key, stored in self._stored.items() if not stored.transient}
        for key, entry in header["models"].items():
            if key in sections:
                self._stored.pop(key, None)  # before the new one is decoded: large states are there once
                spec = ModelSpec.from_json(entry["spec"])
                host = ModelSpec.from_json(entry["host"]) if "host" in entry else spec
                start = self._resident(host).start(wire.bytes_to_tensors(sections.pop(key)))
                self._stored[key] = _StoredState(entry["version"], spec, host, entry.get("transient", False), start)
            elif key not in self._stored or self._stored[key].version != entry["version"]:
                raise wire.WireError(f"version {entry['version']} of model {key!r} was not sent to this executor")

    def state(self, key: str) -> State:
        """Return the state of a pool key as it was sent, on the training device."""
        return self._stored[key].start.state

    def spec(self, key: str) -> ModelSpec:
        """Return the spec of a pool key."""
        return self._stored[key].spec

    def host(self, key: str) -> ModelSpec:
        """Return the spec of the resident module that runs a model: its supernet's, or its own."""
        return self._stored[key].host

    def module(self, key: str) -> torch.nn.Module:
        """Return the resident module that runs a model, reset to that model's state as it was sent."""
        stored = self._stored[key]
        resident = self._resident(stored.host)
        if isinstance(resident.module, Searchable):
            resident.module.hold(stored.spec["ops"])
        resident.restore(stored.start)
        return resident.module

    def resident(self, key: str) -> torch.nn.Module:
        """Return the resident module that runs a model, with whatever state it holds."""
        return self._resident(self._stored[key].host).module

    @property
    def records(self) -> bool:
        """Whether cohorts' steps are recorded: a replay costs one launch, also for a cohort of one."""
        return self.device.type == "cuda"

    def parts(self, clients: Sequence[T], most: int) -> list[Sequence[T]]:
        """Cut clients into cohorts of at most ``most``, of about equal size.

        Where steps are recorded, for few numbers of clients, they are whole cohorts and a rest.
        """
        if self.records:
            return [clients[begin : begin + most] for begin in range(0, len(clients), most)]
        return in_parts(clients, math.ceil(len(clients) / most))

    def cohort(self, key: str, clients: int, most: int, *, factored: bool, tap: str | None = None) -> Cohort | None:
        """Return a cohort for at least ``clients`` clients, each at the model's state.

        Args:
            key: Pool key of the model.
            clients: Number of clients that train now.
            most: Largest number of clients of a cohort in this job.
            factored: Whether large linear layers keep, where possible, the factors of their steps instead of weights
                for each client.
            tap: Name of the layer that the clients' loss may call, too; it keeps weights.

        Returns:
            None where the model cannot train in cohorts.

        """
        if self.records:
            clients = recorded_clients(clients, most)
        stored = self._stored[key]
        spec = stored.spec
        if spec not in self._networks:
            self._networks[spec] = stacked(models.build(spec).to(self.device), spec["input_shape"])
        network = self._networks[spec]
        if network is None:
            return None
        layout = spec, factored, tap if factored else None
        cohort = self._cohorts.get(layout)
        if cohort is None or cohort.clients < clients:
            module = models.build(spec).to(self.device)
            names = factorable(network, module, tap) if factored and self.device.type == "cpu" else []
            shape = spec["input_shape"]
            try:
                cohort = Cohort(network, module, shape, clients, self.device, **self._layout, factored=names)
            except Exception as error:
                if of_machine(error):
                    raise
                logging.warning("a model's cohort cannot be built, its clients train one by one", exc_info=error)
                self._networks[spec] = None
                return None
            self._cohorts[layout] = cohort
        cohort.restore(stored.start.state)
        return cohort

    def _resident(self, spec: ModelSpec) -> Resident:
        if spec not in self._residents:
            self._residents[spec] = Resident(models.build(spec), self.device, **self._layout)
        return self._residents[spec]


def can_factor(header: UnitHeader, confs: Sequence[ClientConfig]) -> bool:
    """Whether linear weights can be kept as factors (``training/factored.py``).

    The optimizer, the use of the update, and the number of rows of the factors decide.
    """
    conf = confs[0]
    few = max(conf.local_steps * conf.batch_size for conf in confs) <= MOST_ROWS
    no_norm = header["clip_norm"] is None and conf.max_update_norm is None and not header["norms"]
    whole = not any(item.get("dropped") for item in header.get("items", ()))
    plain = (
        not conf.own_classes and conf.client_state is None and conf.clip_norm is None and conf.precision == "float32"
    )
    sgd = conf.client_optimizer == "sgd" and conf.gradient_offset is None and not conf.group_lasso
    return bool(header["sum"]) and no_norm and whole and plain and few and sgd
