"""FedAvg with an adaptive server (Reddi et al., ICLR 2021, Algorithm 2): what FedYogi and FedAdam share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from fedscale_ext.method import GLOBAL, Decay, Population, Positive, State, Task, Update, models
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.averaging.server_optimizer import ServerOptimizer


@dataclass(frozen=True)
class FedOptParams:
    """Hyperparameters of an adaptive server optimizer (Reddi et al., Algorithm 2).

    Attributes:
        eta: Server learning rate.
        tau: Adaptivity: added to the root of the second moment before the server divides by it.
        beta: Decay of the first moment (beta_1).
        beta2: Decay of the second moment (beta_2).

    """

    method: ClassVar[str]

    eta: Positive = 1e-2
    tau: Positive = 1e-3
    beta: Decay = 0.9
    beta2: Decay = 0.99


class FedOptAggregator(FedAvgAggregator):
    """FedAvg whose server steps along the mean change by an adaptive optimiser, ``kind``."""

    Params: ClassVar[type] = FedOptParams
    kind: ClassVar[Literal["yogi", "adam"]]

    def init_state(self, population: Population, task: Task) -> None:
        """Create w_0 and an optimiser without moments (Algorithm 2, line 1)."""
        super().init_state(population, task)
        p = self.params
        self.optimizer = ServerOptimizer(self.kind, p.eta, p.tau, p.beta, p.beta2)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Step the optimiser on the parameters (Algorithm 2); buffers take the weighted mean."""
        model = self.pool[GLOBAL]
        self.pool.update(GLOBAL, self.optimizer.step(model.state, means[GLOBAL], models.parameter_names(model.spec)))

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return the moments of the optimiser."""
        return self.optimizer.tensors(), {}

    def load_state(self, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
        """Restore the moments."""
        self.optimizer.load(tensors)
