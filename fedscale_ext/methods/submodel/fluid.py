"""FLuID (Wang et al., NeurIPS 2023, Algorithm 1): slow clients train what is left when invariant neurons are dropped.

Invariant Dropout and the framework around it follow the authors' code, but for the departures below:

* From round 2 on, the clients that train the whole model are observed. A neuron is invariant if none of its weights w
  changed by more than th_l |w|, for at least the share ``vote`` of the observed clients (:mod:`invariant_dropout`).
* Each layer (channel group) has its threshold th_l. It starts as the least change of a neuron, and grows while too few
  neurons are invariant.
* A straggler trains a share p of each group's channels. First it drops neurons that were invariant in consecutive
  observed rounds, then those that are invariant now, then random ones. Stragglers of one p train the same submodel in a
  round.
* The server takes each entry's mean over the clients that trained it, by samples.

With ``rates: capacity``, a straggler is a client that does not afford the whole model. It trains the largest p that it
affords, in every round. With ``rates: time``, stragglers are the slowest participants from round 2 on, whatever clients
afford (:func:`invariant_dropout.timed_rates`). Their times are those of the whole model on the virtual clock.

If nobody trains the whole model in a round, the neurons that were invariant before still count. Before the first
observed round, stragglers drop neurons at random.

Departures from the paper and the public code:

* FLuID's rule ``time`` is for one straggler. Here it is for several.
* In the public code, the straggler is the slowest client, however close the next one is. Here the slowest trains the
  whole model if it takes at most ``hysteresis`` times T_next, the time of the slowest of the others. For a straggler
  of its last round, the factor is 1.
* The public code's 1.15 (CIFAR-10) has another place. If another client is slowest, it multiplies the time that the
  straggler is estimated to take for the whole model. The other client becomes the straggler if it takes longer.
* The public code gives p = 0.95, 0.85, 0.75 and 0.65 from T_next / T = 0.9, 0.8, 0.7 and 0.6 on, and 0.5 below. Here p
  is the nearest: between 0.575 and 0.6, that is 0.65 by default.
* With ``rates: time``, submodels begin in round 2. In the public code, stragglers are found in round 2 and
  begin in round 3.
* A layer of C channels keeps ceil(p C) of them. The public code keeps int(p C).
* The public code drops first the neurons that it dropped last, if they are invariant now. Here these are the neurons
  that were invariant in both of the last two observed rounds, dropped or not.
* Here thresholds grow from the first multiple of ``every`` past two observed rounds on, by default the fourth. The
  public code counts from round 11 on (CIFAR-10, of 35 by its comments) or from 126 on (FEMNIST, of 250).
* A threshold may grow again here. In the public code, one never grows after enough neurons were invariant: a layer's
  own (CIFAR-10), or the only one, by the first layer's neurons (FEMNIST).
* FLuID's networks have no BatchNorm. Here its statistics are re-estimated before tests, since those of the whole model
  do not fit a part.
* The public code votes per weight. Here a vote is per neuron.
* The public code has one threshold for all layers on FEMNIST, and one per layer on CIFAR-10. Here each layer has one.
* The public code for FEMNIST never forgets an invariant neuron of the first layer. Here only the last two observed
  rounds count.
* The public code divides zero by zero where a weight stays at zero. Here such a weight did not change.

Paper to code, section by section: docs/methods/width.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch

from fedscale_ext.method import (
    GLOBAL,
    About,
    Cost,
    Count,
    CountMean,
    EvaluationPlan,
    Excludes,
    Feature,
    JobConfig,
    ModelSpec,
    NotNegative,
    Population,
    PositiveFraction,
    Range,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
    models,
    narrowed,
    stream,
)
from fedscale_ext.methods.submodel import invariant_dropout
from fedscale_ext.methods.submodel.capacity_levels import ShrinkingAggregator, check_distinct
from fedscale_ext.population.clock import whole_model_seconds
from fedscale_ext.server.announcements import ModelChoice
from fedscale_ext.submodels import widths_at


@dataclass(frozen=True)
class FluidParams:
    """Hyperparameters of FLuID.

    Attributes:
        p: Sizes of submodels, as shares of each layer's neurons.
        vote: Share of the clients for whom a neuron must be invariant.
        increment: Step by which a layer's threshold grows while too few of its neurons are invariant.
        every: Observed rounds from one step of the threshold to the next.
        rates: ``capacity`` gives a client the largest p that its device affords. ``time`` goes by the time that it
            takes, as in the paper.
        share: Share of the clients that are stragglers: the slowest.
        hysteresis: A client becomes a straggler if it takes this many times as long as the
            slowest of the others. In the public code, the slowest client is always the straggler.
        inference: ``submodel`` serves stragglers the submodel of their rate, as FedTrans's protocol tests clients.
            ``global`` serves all the global model: FLuID's own, the default with ``rates: time``.

    """

    p: tuple[float, ...] = (0.95, 0.85, 0.75, 0.65, 0.5)
    vote: PositiveFraction = 0.75
    increment: NotNegative = 0.2
    every: Count = 2
    rates: Literal["capacity", "time"] = "capacity"
    share: PositiveFraction = 0.2
    hysteresis: Annotated[float, Range(1)] = 1.15
    inference: Literal["submodel", "global"] = "submodel"

    def __post_init__(self) -> None:
        if not self.p or not all(0 < p < 1 for p in self.p):
            raise UserError(f"fluid.p is {self.p}; it must name one size or more, each above 0 and below 1")
        check_distinct("fluid.p", self.p)

    @staticmethod
    def job_defaults(config: JobConfig) -> dict[str, Any]:
        """Serve the global model by default where rates go by time: capacities then count for nothing."""
        return {"inference": "global"} if config.method_params().get("rates") == "time" else {}


def _part(rate: float) -> str:
    return f"p{rate:g}"


class FluidAggregator(ShrinkingAggregator):
    """One model, of which slow clients train the part that others still change (FLuID).

    Server state: the global model, its parts by rate, and per channel group the threshold and which neurons were
    invariant in the last two rounds that showed it; ``rate`` [clients] as each client last trained.
    """

    about: ClassVar[About] = About("width", 2023)
    Params: ClassVar[type] = FluidParams
    reduces: ClassVar[bool] = False  # each client's state is looked at on its own
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.DROPPED_TENSORS, "takes neurons that did not move for invariant ones"),
    )

    def smallest_version(self) -> ModelSpec:
        """Spec of the smallest submodel."""
        return narrowed(self.whole_spec(), min(self.params.p))

    def init_state(self, population: Population, task: Task) -> None:
        """Create w_0, and a part for each rate that a client may get."""
        spec, p = self.whole_spec(), self.params
        full = self.pool.add(GLOBAL, spec, self.initial_state(spec))
        self.widths = {rate: widths_at(spec, rate) for rate in p.p}
        specs = {rate: narrowed(spec, rate) for rate in p.p}
        self.rate = np.ones(task.num_clients)
        costs = {rate: models.cost(small) for rate, small in specs.items()}
        if p.rates == "capacity":
            macs = {rate: float(cost.forward_macs) for rate, cost in costs.items()}
            self.rate = invariant_dropout.affordable_rates(self.capacity, full.cost.forward_macs, macs)
        self._report_rates(full.cost, costs)
        self.thresholds: dict[str, float] = {}
        self.before: dict[str, np.ndarray] = {}
        self.now: dict[str, np.ndarray] = {}
        self.observed = 0
        for rate in sorted(set(p.p) if p.rates == "time" else set(self.rate.tolist()) - {1.0}):
            self.pool.add_part(_part(rate), GLOBAL, specs[rate], self._remaining(rate, 0))
        if p.rates == "time" or self._used():
            self._report_few_rounds()

    def _report_rates(self, whole: Cost, parts: Mapping[float, Cost]) -> None:
        """Report the clients of each rate, and those that do not afford what they train."""
        if self.params.rates == "capacity":
            smallest = float(min(cost.forward_macs for cost in parts.values()))
            self.report_weak(smallest, "they would train it all the same")
            choices = {1.0: ModelChoice("the whole model", whole)}
            choices |= {rate: ModelChoice(f"rate {rate:g}", cost) for rate, cost in parts.items()}
            indices = np.array([list(choices).index(rate) for rate in self.rate.tolist()])
            self.report_assignment(list(choices.values()), indices)
            self.report_unaffordable(choices[1.0].name, whole.forward_macs)
        elif beyond := self.count_beyond(whole.forward_macs):  # in round 1 all train it, later all but the slowest
            self.notice(
                f"{beyond} of {len(self.capacity)} clients do not afford the whole model, which all train that are no "
                "stragglers"
            )

    def _report_few_rounds(self) -> None:
        """Report that neurons are dropped at random, if the job is too short for others. Round 2 is the first that is
        observed; what a round shows counts from the next one on."""
        rounds, every = self.args.rounds, self.params.every
        grows = 1 + next(observed for observed in range(3, 3 + every) if observed % every == 0)
        if rounds <= 2:
            self.notice(
                f"rounds is {rounds}: which neurons are invariant counts from round 3 on, so this job drops them at "
                "random"
            )
        elif self.params.increment and rounds <= grows:
            self.notice(
                f"rounds is {rounds}: thresholds grow after round {grows} for the first time, so few neurons are "
                "invariant and most are dropped at random"
            )

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Give most clients the full model, and each straggler this round's submodel of its rate."""
        rows = participants - 1
        if self.params.rates == "time" and round > 1:
            p, before = self.params, self.rate[rows] < 1
            self.rate[rows] = invariant_dropout.timed_rates(self._seconds(rows), before, p.p, p.share, p.hysteresis)
        for rate in self._used():
            self.pool.set_channels(_part(rate), GLOBAL, self._remaining(rate, round))
        self._mean = CountMean(self.pool[GLOBAL].state)
        self._changes: dict[str, list[np.ndarray]] = {}
        return [WorkItem(client, self._trained(client)) for client in participants.tolist()]

    def collect(self, round: int, update: Update, state: State) -> None:
        """Add a client's state to the mean; note how far each neuron moved, if the client had all of them."""
        full, model = self.pool[GLOBAL], self.pool[update.item.model]
        self._mean.add(state, model.part.covered if model.part else None, self.weight(update.item))
        if model.part is None and round > 1:
            for group, change in invariant_dropout.neuron_changes(full.spec, full.state, state).items():
                self._changes.setdefault(group, []).append(change)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Take each entry's mean over the clients that trained it; then find the invariant neurons."""
        self.pool.update(GLOBAL, self._mean.result())
        if self._changes:
            self._observe()

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve a straggler its submodel where ``inference`` says so, and all others the global model."""
        whole, clients = self.params.inference == "global", range(1, self.task.num_clients + 1)
        return EvaluationPlan([GLOBAL if whole else self._trained(client) for client in clients], {GLOBAL: GLOBAL})

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return rates and invariant neurons as tensors, thresholds as JSON."""
        tensors = {"rate": torch.from_numpy(self.rate)}
        for kind in ("before", "now"):
            tensors.update({f"{kind}/{group}": torch.from_numpy(one) for group, one in getattr(self, kind).items()})
        return tensors, {"thresholds": self.thresholds, "observed": self.observed}

    def load_state(self, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.thresholds, self.observed = data["thresholds"], data["observed"]
        self.rate = tensors["rate"].numpy().copy()
        for kind in ("before", "now"):
            by_group = {
                name.partition("/")[2]: tensors[name].numpy() for name in tensors if name.startswith(f"{kind}/")
            }
            setattr(self, kind, by_group)

    def _observe(self) -> None:
        """Update the thresholds, and find the neurons whose changes are below them."""
        p, self.observed = self.params, self.observed + 1
        full = models.group_widths(self.pool[GLOBAL].spec)
        smallest = self.widths.get(min(self._used(), default=1.0), full)
        for group, rows in self._changes.items():
            changes = np.stack(rows)
            last = self.now.get(group, np.zeros(full[group], dtype=bool))
            self.thresholds[group] = invariant_dropout.next_threshold(
                self.thresholds.get(group, 0.0),
                self.observed,
                invariant_dropout.least_change(changes),
                int(last.sum()) < full[group] - smallest[group],
                p.increment,
                p.every,
            )
            self.before[group] = last
            self.now[group] = invariant_dropout.invariant(changes, self.thresholds[group], p.vote)
        self.record("thresholds", dict(self.thresholds))
        self.record("invariant", {group: np.flatnonzero(now).tolist() for group, now in self.now.items()})

    def _remaining(self, rate: float, round: int) -> dict[str, torch.Tensor]:
        channels = models.group_widths(self.pool[GLOBAL].spec)
        generator = stream(self.seed, round, _part(rate), "dropout")
        return invariant_dropout.remaining_channels(self.widths[rate], channels, self.before, self.now, generator)

    def _used(self) -> list[float]:
        """Rates of the submodels that some client has."""
        return sorted(set(self.rate.tolist()) - {1.0})

    def _trained(self, client: int) -> str:
        rate = float(self.rate[client - 1])
        return GLOBAL if rate == 1.0 else _part(rate)

    def _seconds(self, rows: np.ndarray) -> np.ndarray:
        """Virtual seconds that the clients in these rows take for the full model."""
        return whole_model_seconds(
            self.population.computation_ms[rows],
            self.population.communication_kbps[rows],
            [self.pool[GLOBAL].cost] * len(rows),
            self.task.samples_seen(rows),
            self.config.job.reference_macs,
        )
