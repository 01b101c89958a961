"""FedAvg (McMahan et al. 2017, Algorithm 1): one model, averaged with the clients' numbers of samples."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedscale_ext import models
from fedscale_ext.population.population import Population
from fedscale_ext.runtime.aggregator import MultiModelAggregator
from fedscale_ext.runtime.work import EvaluationPlan, Task, Update, WorkItem
from fedscale_ext.submodels.mean import count_mean


@dataclass(frozen=True)
class FedAvgParams:
    """FedAvg has no hyperparameters of its own."""


class FedAvgAggregator(MultiModelAggregator):
    """One model for everybody, averaged with the clients' numbers of samples (FedAvg)."""

    Params: ClassVar[type] = FedAvgParams

    def init_state(self, population: Population, task: Task) -> None:
        """w_0."""
        spec = self.initial_spec()
        self.pool.add("global", spec, models.initial_state(spec, self.seed))

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """S_t trains w_t."""
        return [WorkItem(int(client), "global") for client in participants]

    def aggregate(self, round: int, updates: list[Update]) -> None:
        """w_{t+1} = sum over clients of n_k / n w^k_{t+1} (FedScale weighs all clients alike)."""
        mean = count_mean(self.pool["global"].state, ((update.state, None, update.samples) for update in updates))
        self.pool.update("global", mean)

    def evaluation_plan(self) -> EvaluationPlan:
        """Every client is served the global model."""
        return EvaluationPlan(["global"] * self.task.num_clients, {"global": "global"})


if __name__ == "__main__":
    from fedscale_ext.runtime.launch import run_rank

    run_rank()
