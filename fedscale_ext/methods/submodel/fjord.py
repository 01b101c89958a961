"""FjORD (Horvath et al., NeurIPS 2021): ordered dropout at the clients."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fedscale_ext.method import EvaluationPlan, Population, Task, UserError, WorkItem
from fedscale_ext.methods.submodel.fjord_client import FjordExecutor, drawn_widths
from fedscale_ext.methods.submodel.levels import RatesAggregator, check_drawn, check_ranks, check_rates, check_shares
from fedscale_ext.submodels import widths_at
from fedscale_ext.util.ranges import check_ranges


@dataclass(frozen=True)
class FjordParams:
    """``p``: rates of channels. A client's p_max is the largest whose MACs it affords (``levels`` capacity), or one of
    these drawn once from ``shares`` of the rates, largest first (fix; the paper's tiers, which are uniform).
    ``groups`` instead: how many clients have each, smallest rate first, the weakest clients first.
    ``distil``: in each step, the model of p_max learns from the labels and teaches the drawn one (its
    self-distillation). ``each_width`` tests the model of every p on all test samples.
    """

    p: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    levels: Literal["capacity", "fix"] = "capacity"
    shares: tuple[float, ...] | None = None
    groups: tuple[int, ...] = ()
    distil: bool = False
    each_width: bool = False

    def __post_init__(self) -> None:
        check_ranges(self, "fjord")
        check_rates("fjord.p", self.p)
        check_shares("fjord.shares", self.shares, len(self.p))
        if self.groups and (self.levels == "fix" or self.shares is not None):
            raise UserError("fjord.groups is given with fjord.levels fix or fjord.shares; remove one of them")
        check_drawn("fjord", self.levels, self.shares)


class FjordAggregator(RatesAggregator):
    """Every batch trains another share of the leading channels, up to what the device affords (FjORD).

    The public code overwrites, with p falling, the leading blocks by the example-weighted mean of the clients with
    p_max >= p. What an entry is left with is the mean of the smallest p whose block holds it, thus over all clients
    whose p_max covers it: the count-mean of the base.
    """

    Params: ClassVar[type] = FjordParams
    Executor: ClassVar[type] = FjordExecutor

    @property
    def rates(self) -> list[float]:
        """Values of p, largest first."""
        return sorted(self.params.p, reverse=True)

    def init_state(self, population: Population, task: Task) -> None:
        """w_0; each client's p_max."""
        self.levels_by, self.shares = self.params.levels, self.params.shares
        if self.params.groups:
            check_ranks("fjord.groups", self.params.groups, len(self.params.p), task.num_clients)
            self.levels_by, self.ranks = "ranks", self.params.groups
        super().init_state(population, task)

    def objective(self, level: int) -> dict[str, Any]:
        """The widths up to p_max, widest first, and whether the widest teaches."""
        spec = self.pool[self.whole].spec
        return {"widths": [widths_at(spec, rate) for rate in self.rates[level:]], "distil": self.params.distil}

    def item_of(self, client: int) -> WorkItem:
        """With the MACs of all widths alike, which its steps draw on average."""
        level = int(self.own[client - 1])
        macs = self._macs_of_steps(level)
        return WorkItem(client, self.keys[level], self.objective(level), effort=float(np.mean(macs)) / macs[0])

    def evaluation_plan(self) -> EvaluationPlan:
        """As the base's; with ``each_width`` every p beside, titled by it."""
        plan = super().evaluation_plan()
        if not self.params.each_width:
            return plan
        widths = {f"p{rate:g}": key for rate, key in zip(self.rates, self.keys, strict=True)}
        return EvaluationPlan(plan.serve, {**plan.named, **widths})

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Each participant trains widths up to its p_max; its MACs are those of the steps that it will draw."""
        return [
            WorkItem(item.client, item.model, item.objective, self._effort(round, item))
            for item in super().assign(round, participants)
        ]

    def _effort(self, round: int, item: WorkItem) -> float:
        macs = self._macs_of_steps(self.keys.index(item.model))
        sizes = self.task.step_sizes(item.client, item.objective)
        drawn = drawn_widths(self.seed, round, item.client, len(macs), len(sizes))
        return float(np.average([macs[choice] for choice in drawn], weights=sizes)) / macs[0]

    def _macs_of_steps(self, level: int) -> list[float]:
        """Of a step at each width up to the level's; its own, where it teaches, beside each narrower one."""
        macs = [float(self.pool[key].cost.forward_macs) for key in self.keys[level:]]
        return [macs[0], *(own + macs[0] * self.params.distil for own in macs[1:])]
