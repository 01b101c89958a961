"""The server's side of MyMethod: FedAvg with a momentum of its own, as a start.

Say here which paper the method follows, and by each step its section and equation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from fedscale_ext.method import (
    Decay,
    EvaluationPlan,
    Fraction,
    MultiModelAggregator,
    Population,
    State,
    Task,
    Update,
    WorkItem,
    models,
)

from .client import MyMethodClient


@dataclass(frozen=True)
class MyMethodParams:
    """Hyperparameters of MyMethod: a configuration sets them as ``NAME.momentum``.

    Attributes:
        momentum: Momentum of the server. With 0, it takes the clients' mean as it is.
        smoothing: Share of a label that goes to all classes.

    """

    momentum: Decay = 0.5
    smoothing: Fraction = 0.1


class MyMethodAggregator(MultiModelAggregator):
    """One model, averaged with server momentum and trained on smooth labels (this line is in `fedscale methods`)."""

    Params: ClassVar[type] = MyMethodParams
    Client: ClassVar[type] = MyMethodClient

    def init_state(self, population: Population, task: Task) -> None:
        """The first model: the configuration's `model`, drawn from the job's seed or given by `initial_weights`."""
        spec = self.initial_spec()
        self.pool.add("global", spec, self.initial_state(spec))
        self.velocity: State = {}  # float64, by parameter

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Every participant trains the one model; what its client must know goes into the objective."""
        objective = {"smoothing": self.params.smoothing}
        return [WorkItem(int(client), "global", objective) for client in participants]

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """v = momentum v + (mean - w), w = w + v for parameters; the mean for BatchNorm's statistics."""
        model, new = self.pool["global"], dict(means["global"])
        for name in models.parameter_names(model.spec):
            old = model.state[name]
            change = new[name].double() - old.double()
            if name in self.velocity:
                change += self.params.momentum * self.velocity[name]
            self.velocity[name] = change
            new[name] = (old.double() + change).to(old.dtype)
        self.pool.update("global", new)

    def evaluation_plan(self) -> EvaluationPlan:
        """Every client is served the one model."""
        return EvaluationPlan(["global"] * self.task.num_clients, {"global": "global"})

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """What a checkpoint needs beside the pool, or a resumed job would go on without momentum."""
        return dict(self.velocity), {}

    def load_state(self, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
        """Take it back."""
        self.velocity = dict(tensors)
