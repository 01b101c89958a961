"""FedAdam (Reddi et al., ICLR 2021, Algorithm 2): FedAvg with an adaptive server.

FedScale has no FedAdam and no keys for it. The defaults of ``beta``, ``beta2`` and ``tau`` are the paper's constants.
The paper tunes ``eta`` for each task.

Paper to code, section by section: docs/methods/averaging.md.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedscale_ext.method import About
from fedscale_ext.methods.averaging.fedopt import FedOptAggregator, FedOptParams


@dataclass(frozen=True)
class FedAdamParams(FedOptParams):
    """Hyperparameters of FedAdam."""

    method: ClassVar[str] = "fedadam"


class FedAdamAggregator(FedOptAggregator):
    """FedAvg with an adaptive server that steps with Adam along the mean change (FedAdam)."""

    about: ClassVar[About] = About("one model", 2021)
    Params: ClassVar[type] = FedAdamParams
    kind: ClassVar[Literal["yogi", "adam"]] = "adam"
