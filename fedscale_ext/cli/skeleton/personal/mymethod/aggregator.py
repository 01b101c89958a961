"""The server's side of MyMethod: FedPer (Arivazhagan et al. 2019), as a start.

Say here which paper the method follows, and by each step its section and equation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedscale_ext.method import (
    ClientState,
    ClientTensors,
    CountOrZero,
    EvaluationPlan,
    Excludes,
    Feature,
    MultiModelAggregator,
    Population,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
    models,
    personal_version,
)

from .client import MyMethodClient


@dataclass(frozen=True)
class MyMethodParams:
    """Hyperparameters of MyMethod: a configuration sets them as ``NAME.layers``.

    Attributes:
        layers: Number of last layers that each client keeps. With 0, all clients share the whole model.

    """

    layers: CountOrZero = 1


class MyMethodAggregator(MultiModelAggregator):
    """Clients share the body of a model and keep its last layers (this line is in `fedscale methods`)."""

    Params: ClassVar[type] = MyMethodParams
    Client: ClassVar[type] = MyMethodClient
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.CHANGES, "starts clients from layers that they keep"),
        Excludes(Feature.PRIVACY, "serves clients layers that they keep"),
    )

    def init_state(self, population: Population, task: Task) -> None:
        """The first model, and the names of the tensors that clients keep."""
        spec = self.initial_spec()
        self.pool.add("global", spec, self.initial_state(spec))
        names = models.parameter_names(spec)
        layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
        if self.params.layers >= len(layers):
            raise UserError(f"mymethod.layers is {self.params.layers}; the model has {len(layers)} layers")
        last = layers[len(layers) - self.params.layers :]
        self.personal = [name for name in names if name.rpartition(".")[0] in last]

    def client_tensors(self) -> list[ClientTensors]:
        """What each client keeps: files have it between rounds. The template gives names, shapes and types."""
        kinds = super().client_tensors()
        if not self.personal:
            return kinds
        template = {name: self.pool["global"].state[name] for name in self.personal}
        return [*kinds, ClientState(self.log_dir, self.task.num_clients, {"global": template})]

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Every participant trains all layers, and only the body travels: ``bytes`` count in each direction."""
        model = self.pool["global"]
        body = model.cost.bytes - sum(model.state[name].nbytes for name in self.personal)
        return [WorkItem(int(client), "global", {"personal": self.personal}, bytes=body) for client in participants]

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """The mean of the bodies; the server's own last layers stay as they are."""
        old = self.pool["global"].state
        self.pool.update("global", {**means["global"], **{name: old[name] for name in self.personal}})

    def evaluation_plan(self) -> EvaluationPlan:
        """Each client is tested on the body with its own last layers."""
        key = personal_version("global") if self.personal else "global"
        return EvaluationPlan([key] * self.task.num_clients)
