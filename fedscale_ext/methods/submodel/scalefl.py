"""ScaleFL (Ilhan et al., CVPR 2023): levels that differ in width and in depth, and exits that may learn from the last.

Each client trains leading channels of the first blocks, up to an exit. Deeper exits weigh more in its loss. With
``self_kd``, the others also learn from the deepest one. Each entry becomes the mean over the clients whose level holds
it.

Departures from the paper and the public code:

* Exits learn from the deepest one only with ``self_kd``, as in the public code, whose gamma is 0 by default. The
  paper's do. It begins one round earlier than there.
* An exit is a mean over the picture, or its values, and one linear layer. The public code's exits begin with three
  convolutions, or two in MSDNet.
* BatchNorm's statistics are re-estimated before models are tested. The public code tests with each batch's own.
* The divergence is summed over classes, as it is defined. There it is their mean, as if gamma were divided by them.

Paper to code, section by section: docs/methods/depth.md.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.method import (
    About,
    Bench,
    Fraction,
    ModelSpec,
    Population,
    Positive,
    Task,
    UserError,
    WorkItem,
    narrowed,
    window,
)
from fedscale_ext.methods.submodel.capacity_levels import Level, LevelsParams
from fedscale_ext.methods.submodel.exit_levels import ExitLevelsAggregator, MultiExitClient
from fedscale_ext.models.multi_exit.family import num_exits, prefix


@dataclass(frozen=True)
class ScaleFLParams(LevelsParams):
    """Hyperparameters of ScaleFL.

    The last level is the whole network.

    Attributes:
        widths: Rate of channels of each level, smallest level first.
        exits: Number of exits of each level, smallest level first.
        self_kd: Exits also learn from the deepest one of their model. The paper does this; the public code does it only
            with a given gamma.
        gamma: Weight of the distillation: gamma T^2 KL(deepest || exit). The public code's README has 0.05, once.
        temperature: Temperature T of the distillation.
        kd_after: Share of the job's rounds after which the distillation begins, or of ``stop_macs`` if clients spend
            that share earlier. Unless it is 0 or 1, a job cannot be resumed with another number of rounds.
        detach: The deepest exit does not learn from the others in turn. In the public code, it does.
        weighted: Clients weigh by their training samples. The public code weighs all alike.
        shares: Shares of the levels that ``levels: fix`` draws from, smallest level first. By default, they are equal,
            as in the public code.

    """

    widths: tuple[float, ...] = (0.7, 0.7, 0.75, 1.0)
    exits: tuple[int, ...] = (1, 2, 3, 4)
    self_kd: bool = False
    gamma: Positive = 0.05
    temperature: Positive = 3.0
    kd_after: Fraction = 0.25
    detach: bool = False
    weighted: bool = False

    method: ClassVar[str] = "scalefl"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.exits or len(self.widths) != len(self.exits):
            raise UserError(
                f"scalefl.widths is {list(self.widths)} and scalefl.exits is {list(self.exits)}; they must be as many, "
                "one for each level"
            )
        if self.exits[0] < 1 or list(self.exits) != sorted(set(self.exits)):
            raise UserError(f"scalefl.exits is {list(self.exits)}; it must rise from 1 or more")
        if not self.widths[0] > 0 or list(self.widths) != sorted(self.widths) or self.widths[-1] != 1:
            raise UserError(f"scalefl.widths is {list(self.widths)}; rates must be above 0, never fall, and end with 1")

    def follows_rounds(self, rounds: int) -> str:
        """Return the share of the rounds without distillation, where there is one."""
        return f"scalefl.kd_after: {self.kd_after:g}" if self.self_kd and 0 < self.kd_after < 1 else ""


class ScaleFLClient(MultiExitClient):
    """Client whose deeper exits weigh more, and whose exits learn from the deepest one.

    The loss of n exits is sum_j j (CE_j + gamma T^2 KL(p_n || p_j)) / (n (n + 1) / 2), with p at temperature T.
    """

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self._gamma: float = conf.objective.get("kd_gamma", 0.0)
        self._temperature: float = conf.objective.get("kd_temperature", 1.0)
        self._detach: bool = conf.objective.get("kd_detach", False)
        self.loss_key = self._gamma, self._temperature, self._detach

    def combined(self, output: Tensor, each: Tensor) -> Tensor:
        """Loss of each sample [...], from logits [..., exits, classes] and cross-entropies [..., exits]."""
        if self._gamma:
            log_p = (output / self._temperature).log_softmax(-1)
            teacher = log_p[..., -1:, :].detach() if self._detach else log_p[..., -1:, :]
            # of the last exit from itself it is zero, and so are its gradients
            divergence = (teacher.exp() * (teacher - log_p)).sum(-1)
            each = each + self._gamma * self._temperature**2 * divergence
        weight = torch.arange(1, each.shape[-1] + 1, dtype=each.dtype, device=each.device)
        return (each * (weight / weight.sum())).sum(-1)


class ScaleFLAggregator(ExitLevelsAggregator):
    """Clients train leading channels of the first blocks, up to an exit (ScaleFL)."""

    about: ClassVar[About] = About("depth", 2023, "a model with exits")
    Params: ClassVar[type] = ScaleFLParams
    Client: ClassVar[type] = ScaleFLClient

    def init_state(self, population: Population, task: Task) -> None:
        """Create the network and its levels."""
        super().init_state(population, task)
        if self.params.self_kd and self.params.kd_after == 1:
            self.notice("exits never learn from the deepest one: scalefl.kd_after is 1, all rounds")

    def make_levels(self, spec: ModelSpec) -> list[Level]:
        """The levels, largest first; UserError where the last one is not the whole network."""
        widths, exits = self.params.widths, self.params.exits
        if exits[-1] != num_exits(spec):
            raise UserError(
                f"scalefl.exits is {list(exits)} and model {self.args.model} has {num_exits(spec)} exits; the last "
                "level must have them all: set scalefl.exits, and scalefl.widths with it"
            )
        return [
            Level(
                f"level{number}",
                prefix(narrowed(spec, widths[number - 1]), exits[number - 1]),
                {} if widths[number - 1] == 1 else window(spec, widths[number - 1]),
                f"width {widths[number - 1]:g} up to exit {exits[number - 1]}",
            )
            for number in range(len(exits), 0, -1)
        ]

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant train its level; exits learn from the deepest one after ``kd_after`` of the job."""
        self._distils = self.params.self_kd and self.has_passed(self.params.kd_after, round)
        return super().assign(round, participants)

    def objective(self, level: int) -> dict[str, Any]:
        """How exits learn from the deepest one, where they do and there are several."""
        p = self.params
        if not self._distils or self.levels[level].spec["exits"] == 1:
            return {}
        return {"kd_gamma": p.gamma, "kd_temperature": p.temperature, "kd_detach": p.detach}
