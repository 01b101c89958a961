"""DepthFL (Kim et al., ICLR 2023): levels that differ only in depth, whose exits teach each other.

Each client trains a prefix of one network with several exits. Every exit learns from the labels and from all other
exits. Each layer becomes the mean over the clients that hold it.

Departures from the paper and the public code:

* Predictions are the mean of the exits' probabilities. The public code averages logits.
* An exit is a mean over the picture, or its values, and one linear layer. The public code's early exits begin with
  attention and separable convolutions.
* FedDyn's h is the mean over all clients, whatever they hold. It corrects what was trained in a round, as in the
  public code. Parameters are corrected; BatchNorm's statistics are averaged.

Paper to code, section by section: docs/methods/depth.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.method import (
    About,
    Bench,
    ClientTensors,
    JobConfig,
    ModelSpec,
    NotNegative,
    Population,
    Positive,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
)
from fedscale_ext.methods.submodel.capacity_levels import Level, LevelsParams
from fedscale_ext.methods.submodel.exit_levels import ExitLevelsAggregator, MultiExitClient, prefixes
from fedscale_ext.methods.submodel.feddyn import DynamicGradients

_HALF = 0.5  # of its full weight, below which a job tells that exits hardly learn from each other


@dataclass(frozen=True)
class DepthFLParams(LevelsParams):
    """Hyperparameters of DepthFL.

    Levels are prefixes of the model: each ends in an exit.

    Attributes:
        kd: The exits of a client's model learn from each other.
        ramp_up: Rounds over which the weight of that learning rises to its full value.
        alpha: Weight of FedDyn's regularizer. With 0, there is none.
        inclusive: Clients train, and are served, only the deepest exit of their prefix, as in InclusiveFL (Liu et al.,
            KDD 2022) without its distillation. ``alpha`` is then 0 by default.
        weighted: Clients weigh by their training samples. The public code weighs all alike.

    """

    kd: bool = True
    ramp_up: Positive = 300.0
    alpha: NotNegative = 0.1
    inclusive: bool = False
    weighted: bool = False

    method: ClassVar[str] = "depthfl"

    @classmethod
    def job_defaults(cls, config: JobConfig) -> dict[str, Any]:
        """Set alpha to 0 where ``inclusive`` is on."""
        inclusive = config.method_params().get("inclusive") is True
        return {**super().job_defaults(config), **({"alpha": 0.0} if inclusive else {})}


class DepthFLClient(MultiExitClient):
    """Client whose exits teach each other.

    The loss of n exits is sum_i CE_i + w(t) / (n - 1) sum_{i != j} KL(p_j || p_i), each teacher p_j fixed.
    """

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self._consistency: float = conf.objective.get("consistency", 0.0)
        # w(t) is another one in each round: recordings would pile up
        self.loss_key = None if self._consistency else ()

    def combined(self, output: Tensor, each: Tensor) -> Tensor:
        """Loss of each sample [...], from logits [..., exits, classes] and cross-entropies [..., exits]."""
        others = each.shape[-1] - 1
        if not (self._consistency and others):
            return each.sum(-1)
        log_p = output.log_softmax(-1)
        fixed = log_p.detach()
        # all pairs at once: with itself, an exit's divergence is zero, and so are its gradients
        negative_entropy = (fixed.exp() * fixed).sum((-2, -1)) * each.shape[-1]
        crossed = (fixed.exp().sum(-2) * log_p.sum(-2)).sum(-1)
        return each.sum(-1) + self._consistency / others * (negative_entropy - crossed)


class DepthFLAggregator(ExitLevelsAggregator):
    """Clients train prefixes of one network; each layer becomes the mean over those who hold it (DepthFL)."""

    about: ClassVar[About] = About("depth", 2023, "a model with exits")
    Params: ClassVar[type] = DepthFLParams
    Client: ClassVar[type] = DepthFLClient
    reestimates_by_default: ClassVar[bool] = False  # BatchNorm's are averaged over those who trained them

    def whole_spec(self) -> ModelSpec:
        """Spec of the network, which predicts by all its exits together."""
        return super().whole_spec().replace(predict="last" if self.params.inclusive else "mean")

    def make_levels(self, spec: ModelSpec) -> list[Level]:
        """The prefixes, deepest first; ``inclusive``: with only their last exit."""
        return prefixes(spec, "last" if self.params.inclusive else "all")

    def init_state(self, population: Population, task: Task) -> None:
        """Create the network and its prefixes.

        Raises:
            UserError: Another option of the job excludes FedDyn.

        """
        job = self.config.job
        if self.params.alpha and job.control_variates:
            raise UserError("control_variates and depthfl.alpha both correct clients' gradients; set one of them to 0")
        if self.params.alpha and job.dp_noise_multiplier is not None:
            raise UserError(
                "depthfl.alpha tells of clients' data what dp_noise_multiplier does not shield; set it to 0, or remove "
                "dp_noise_multiplier"
            )
        super().init_state(population, task)
        rounds = self.args.rounds
        self._tell_of_low_weight(rounds, f"rounds is {rounds}")

    def _tell_of_low_weight(self, rounds: int, why: str) -> None:
        p = self.params
        if p.kd and not p.inclusive and (last := self._weight_of_learning(rounds)) < _HALF:
            self.notice(
                f"{why}: the weight with which exits learn from each other ends at {last:.1g} of 1: "
                f"depthfl.ramp_up is {p.ramp_up:g}"
            )

    def client_tensors(self) -> list[ClientTensors]:
        """Keep FedDyn's gradients of each client, where alpha is above 0; never beside control variates."""
        if not self.params.alpha:
            return super().client_tensors()
        return [DynamicGradients(self.log_dir, self.pool, self.weight, self.eligible)]

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant train its prefix, with the round's weight w(t) of the exits' divergences."""
        self._consistency = self._weight_of_learning(round)
        # the cost of round 1 tells when stop_macs will be spent
        if round == 2 and (last := self.last_round()) < self.args.rounds:
            self._tell_of_low_weight(last, f"stop_macs is spent after about {last} rounds")
        return super().assign(round, participants)

    def _weight_of_learning(self, round: int) -> float:
        phase = 1.0 - min((round - 1) / self.params.ramp_up, 1.0)
        return math.exp(-5.0 * phase * phase)

    def objective(self, level: int) -> dict[str, Any]:
        """w(t) where there are exits that learn from each other, and FedDyn's alpha."""
        p, spec = self.params, self.levels[level].spec
        learns = p.kd and spec["heads"] == "all" and spec["exits"] > 1
        return {**({"consistency": self._consistency} if learns else {}), **({"feddyn": p.alpha} if p.alpha else {})}

    def overrides(self, level: int) -> dict[str, Any]:
        """FedDyn's quadratic term, beside the job's own proximal term."""
        p = self.params
        return {"prox_mu": p.alpha + self.config.job.prox_mu} if p.alpha else {}

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Take the mean of each layer, less h / alpha where a client trained it (FedDyn)."""
        new = dict(means[self.whole])
        gradients = self.client_tensors_by_kind.get(DynamicGradients.kind)
        if isinstance(gradients, DynamicGradients):
            trained = {name for update in updates for name in self.pool[update.item.model].state}
            for name, h in gradients.mean(self.whole).items():
                if name in trained:
                    new[name] = new[name] - h / self.params.alpha
        self.pool.update(self.whole, new)
