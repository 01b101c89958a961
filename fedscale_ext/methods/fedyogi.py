"""FedYogi (Reddi et al., ICLR 2021, Algorithm 2): FedAvg with an adaptive server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fedscale_ext.config import JobConfig
from fedscale_ext.errors import UserError
from fedscale_ext.methods.fedavg import FedAvgAggregator
from fedscale_ext.methods.server_optimizer import ServerOptimizer
from fedscale_ext.models import parameter_names
from fedscale_ext.population.population import Population
from fedscale_ext.runtime.work import State, Task, Update


@dataclass(frozen=True)
class FedYogiParams:
    """``eta`` server learning rate, ``tau`` adaptivity, ``beta``, ``beta2``; defaults FedScale's yogi_* keys."""

    eta: float = 3e-3
    tau: float = 1e-8
    beta: float = 0.9
    beta2: float = 0.99

    def __post_init__(self) -> None:
        if not (self.eta > 0 and self.tau > 0 and 0 <= self.beta < 1 and 0 <= self.beta2 < 1):
            raise UserError("fedyogi needs eta > 0, tau > 0 and beta, beta2 in [0, 1)")

    @staticmethod
    def job_defaults(config: JobConfig) -> dict[str, Any]:
        """FedScale's keys are the defaults."""
        return {name: getattr(config.fedscale, f"yogi_{name}") for name in ("eta", "tau", "beta", "beta2")}


class FedYogiAggregator(FedAvgAggregator):
    """FedAvg with an adaptive server that steps with Yogi along the mean change (FedYogi)."""

    Params: ClassVar[type] = FedYogiParams

    def init_state(self, population: Population, task: Task) -> None:
        """w_0 and empty moments."""
        super().init_state(population, task)
        p = self.params
        self.optimizer = ServerOptimizer("yogi", p.eta, p.tau, p.beta, p.beta2)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Yogi on the parameters, the weighted mean for buffers."""
        model = self.pool["global"]
        self.pool.update("global", self.optimizer.step(model.state, means["global"], parameter_names(model.spec)))

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """The moments."""
        return self.optimizer.tensors(), {}

    def load_state(self, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
        """Take the moments back."""
        self.optimizer.load(tensors)


if __name__ == "__main__":
    from fedscale_ext.runtime.launch import run_rank

    run_rank()
