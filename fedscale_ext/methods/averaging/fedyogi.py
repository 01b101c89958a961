"""FedYogi (Reddi et al., ICLR 2021, Algorithm 2): FedAvg with an adaptive server.

Paper to code, section by section: docs/methods/averaging.md.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fedscale_ext.method import About, JobConfig, Positive
from fedscale_ext.methods.averaging.fedopt import FedOptAggregator, FedOptParams


@dataclass(frozen=True)
class FedYogiParams(FedOptParams):
    """Hyperparameters of FedYogi.

    FedScale's keys ``yogi_eta``, ``yogi_tau``, ``yogi_beta`` and ``yogi_beta2`` are the defaults.

    Attributes:
        eta: Server learning rate. The default is FedScale's ``yogi_eta``.
        tau: Adaptivity: added to the root of the second moment. The default is FedScale's ``yogi_tau``.

    """

    method: ClassVar[str] = "fedyogi"

    eta: Positive = 3e-3
    tau: Positive = 1e-8

    @staticmethod
    def job_defaults(config: JobConfig) -> dict[str, Any]:
        """Take FedScale's yogi_* keys as defaults."""
        return {name: getattr(config.fedscale, f"yogi_{name}") for name in ("eta", "tau", "beta", "beta2")}


class FedYogiAggregator(FedOptAggregator):
    """FedAvg with an adaptive server that steps with Yogi along the mean change (FedYogi)."""

    about: ClassVar[About] = About("one model", 2021)
    Params: ClassVar[type] = FedYogiParams
    kind: ClassVar[Literal["yogi", "adam"]] = "yogi"
