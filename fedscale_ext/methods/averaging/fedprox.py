"""FedProx (Li et al., MLSys 2020): FedAvg whose clients are pulled towards the global model.

Departures from the paper and the public code:

* The paper's Algorithm 2 draws devices with probabilities p_k and takes a plain mean of their models. Here the mean
  goes by samples and draws are those of the job, even by default. The public code draws evenly and takes this mean.
* In the paper and the public code, stragglers return partial work. Here each participant does the job's whole work.

Paper to code, section by section: docs/methods/averaging.md.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedscale_ext.method import GLOBAL, About, JobConfig, NotNegative, WorkItem
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator


@dataclass(frozen=True)
class FedProxParams:
    """Hyperparameters of FedProx.

    Attributes:
        mu: Weight of the proximal term mu / 2 ||w - w^t||^2 (Eq. 2). The default is FedScale's ``proxy_mu``.

    """

    mu: NotNegative = 0.1

    @staticmethod
    def job_defaults(config: JobConfig) -> dict[str, Any]:
        """Take FedScale's key ``proxy_mu`` as the default of mu."""
        return {"mu": config.fedscale.proxy_mu}


class FedProxAggregator(FedAvgAggregator):
    """FedAvg whose clients are pulled towards the global model (FedProx).

    Clients minimise F_k(w) + mu / 2 ||w - w^t||^2; the gradient of the term points to w^t.
    """

    about: ClassVar[About] = About("one model", 2020)
    Params: ClassVar[type] = FedProxParams
    prox_param: ClassVar[str] = "mu"

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Give each participant FedAvg's work with the proximal term (Eq 2)."""
        return [WorkItem(int(client), GLOBAL, overrides={"prox_mu": self.params.mu}) for client in participants]
