"""ScaleFL (Ilhan et al., CVPR 2023): levels that differ in width and in depth, and exits that learn from the last."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedscale_ext.method import ModelSpec, Positive, Share, UserError, WorkItem, narrowed, window
from fedscale_ext.methods.submodel.exit_levels import ExitLevelsAggregator, ExitLevelsParams
from fedscale_ext.methods.submodel.levels import Level
from fedscale_ext.methods.submodel.scalefl_client import ScaleFLExecutor
from fedscale_ext.models.multi_exit.family import num_exits, prefix


@dataclass(frozen=True)
class ScaleFLParams(ExitLevelsParams):
    """``widths`` and ``exits``: each level's rate of channels and how many exits it has, smallest level first; the last
    one is the whole network. ``levels`` capacity gives each client the largest level whose MACs it affords; groups
    makes them as large as ``groups`` says (smallest level first), the weakest clients first; fix draws them once from
    ``shares`` (default: equal ones, as the public code) among those that a client affords.

    ``self_kd``: exits also learn from the deepest one of their model, by ``gamma`` T^2 KL(deepest || exit) at the
    ``temperature`` T, after the share ``kd_after`` of the rounds. Off, as the public code has it unless it is told a
    gamma (its README has 0.05, once); on in the paper. ``detach``: the deepest exit does not learn from the others in
    turn (in the public code, it does). ``weighted`` weighs clients by their samples (the public code does not).
    """

    widths: tuple[float, ...] = (0.7, 0.7, 0.75, 1.0)
    exits: tuple[int, ...] = (1, 2, 3, 4)
    self_kd: bool = False
    gamma: Positive = 0.05
    temperature: Positive = 3.0
    kd_after: Share = 0.25
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


class ScaleFLAggregator(ExitLevelsAggregator):
    """Clients train leading channels of the first blocks, up to an exit (ScaleFL).

    Each entry becomes the mean over the clients whose level holds it. BatchNorm's statistics are measured anew before
    models are tested (the public code tests with each batch's own). Where this departs from the public code: the
    divergence is summed over classes, as it is defined (there it is their mean, as if gamma were divided by them).
    """

    Params: ClassVar[type] = ScaleFLParams
    Executor: ClassVar[type] = ScaleFLExecutor

    def levels_of(self, spec: ModelSpec) -> list[Level]:
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
        """Each participant trains its level."""
        self._distils = self.params.self_kd and round > self.params.kd_after * self.args.rounds
        return super().assign(round, participants)

    def objective(self, level: int) -> dict[str, Any]:
        """How exits learn from the deepest one, where they do and there are several."""
        p = self.params
        if not self._distils or self.parts[level].spec["exits"] == 1:
            return {}
        return {"kd_gamma": p.gamma, "kd_temperature": p.temperature, "kd_detach": p.detach}

    def weight(self, item: WorkItem) -> float:
        """All clients alike, as the code has it, or by their samples."""
        return super().weight(item) if self.params.weighted else 1.0
