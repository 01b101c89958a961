"""FedAvg (McMahan et al. 2017, Algorithm 1): one model, averaged with the clients' numbers of samples.

Paper to code, section by section: docs/methods/averaging.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedscale_ext.method import (
    GLOBAL,
    About,
    EvaluationPlan,
    MultiModelAggregator,
    Population,
    State,
    Task,
    Update,
    WorkItem,
)


@dataclass(frozen=True)
class FedAvgParams:
    """FedAvg has no hyperparameters of its own."""


class FedAvgAggregator(MultiModelAggregator):
    """One model for all clients, averaged by their numbers of samples (FedAvg)."""

    about: ClassVar[About] = About("one model", 2017)
    Params: ClassVar[type] = FedAvgParams

    def init_state(self, population: Population, task: Task) -> None:
        """Create w_0 (Algorithm 1, server)."""
        spec = self.initial_spec()
        self.pool.add(GLOBAL, spec, self.initial_state(spec))
        self.report_clients_beyond_capacity()

    def report_clients_beyond_capacity(self) -> None:
        """Report the clients that do not afford what they train."""
        self.report_weak(self.pool[GLOBAL].cost.forward_macs, "they would train it all the same")

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each client of S_t train w_t."""
        return [WorkItem(int(client), GLOBAL) for client in participants]

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """w_{t+1} = sum over clients of n_k / n w^k_{t+1} (FedScale weighs all clients alike)."""
        self.pool.update(GLOBAL, means[GLOBAL])

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve the global model to every client."""
        return EvaluationPlan([GLOBAL] * self.task.num_clients, {"global": GLOBAL})
