"""What the pruning baselines share whose devices come in types: one model, of which a device prunes as much as its type
asks, and what each client keeps of it (Hermes, TailorFL, FedMask, FedSkel).

Moss (IMWUT 2025, section 4.2) gives them "0.4x" and "0.05x ResNet-18" by number of parameters as the models of its
types (``param_ratio``), and calls these essentially as large as its MobileNetV2 and LeNet, which are 2 and 7 (or 100)
times smaller; ``match_params`` prunes to what these really have.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from fedscale_ext.method import (
    ClientTensors,
    Cost,
    CountMean,
    EvaluationPlan,
    ModelSpec,
    OwnTensors,
    Population,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
    models,
    narrowed,
    own_version,
)
from fedscale_ext.methods.device_types import DeviceTypesAggregator, check_dealt, type_key
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.submodels import rate_of, widths_at
from fedscale_ext.tasks.client_tensors import OwnTensorsFrom
from fedscale_ext.util.ranges import check_ranges

KEY = "global"
KEPT = "kept/"  # begins the names of what tells a client's channels


@dataclass(frozen=True)
class PrunedTypesParams:
    """``param_ratio``: of each type, the share of the model's parameters that its devices keep; ``match_params``
    instead: named models, or spec files, that have so many. A device has the largest type whose MACs it affords, unless
    ``groups`` says how many have each (the weakest devices get the type of fewest MACs), or ``ranges`` which clients,
    as 1-100, by their positions in the data; both in the order of the types.
    ``weighted`` weighs clients by their samples.
    """

    param_ratio: tuple[float, ...] = (1.0, 0.4, 0.05)
    match_params: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    ranges: tuple[str, ...] = ()
    weighted: bool = True

    method: ClassVar[str]

    def __post_init__(self) -> None:
        check_ranges(self, self.method)
        if not self.match_params:
            share_list(f"{self.method}.param_ratio", self.param_ratio)
        check_dealt(self.method, "match_params" if self.match_params else "param_ratio", self.keys, self)

    @property
    def keys(self) -> list[str]:
        """The types, as they are told apart."""
        if self.match_params:
            return [type_key(name) for name in self.match_params]
        return [f"x{ratio:g}" for ratio in self.param_ratio]


def share_list(key: str, shares: tuple[float, ...]) -> None:
    """UserError unless there are shares, all of them in (0, 1]."""
    if not shares or not all(0 < share <= 1 for share in shares):
        raise UserError(f"{key} is {list(shares)}; it must hold a share above 0 and at most 1 for each type")


class PrunedTypesAggregator(DeviceTypesAggregator):
    """Base of such methods; their ``Params`` are :class:`PrunedTypesParams` and more.

    ``kept``: which channels each client keeps, bool [clients, C] by channel group. Everybody begins with all, or where
    ``starts_at_target`` with the leading ones that its type asks for.
    """

    starts_at_target: bool = False

    reduces: ClassVar[bool] = False
    measures_statistics: ClassVar[bool] = True  # means of those of differently pruned networks fit none of them

    _mean: CountMean | None = None  # of this round's clients

    @property
    def keys(self) -> list[str]:
        """The types, as they are told apart."""
        found: list[str] = self.params.keys
        return found

    def one_way(self, up: np.ndarray) -> np.ndarray:
        """The type's network, whatever travels of it."""
        return np.array([cost.bytes for cost in self.costs], dtype=np.float64)[self.own]

    def kept_share(self) -> np.ndarray:
        """That of the channels that it keeps: all until it has pruned, and whose network stays whole (FedSkel)."""
        parts = [self.part_cost(client + 1).parameters for client in range(self.task.num_clients)]
        return np.array(parts, dtype=np.float64) / self.pool[KEY].cost.parameters

    def type_rates(self) -> dict[str, float]:
        """Of each type the rate of channels that leaves it its number of parameters."""
        spec, p = self.initial_spec(), self.params
        every = models.cost(spec).parameters
        if p.match_params:
            wanted = [models.cost(self._configured(name)).parameters for name in p.match_params]
            for name, count in zip(p.match_params, wanted, strict=True):
                if count > every:
                    raise UserError(
                        f"{p.method}.match_params has {name} with {count:,} parameters, but the model that "
                        f"is pruned, {self.args.model}, has {every:,}; name smaller ones"
                    )
        else:
            wanted = [ratio * every for ratio in p.param_ratio]
        return {key: rate_of(spec, count) for key, count in zip(self.keys, wanted, strict=True)}

    def type_specs(self) -> dict[str, ModelSpec]:
        """The model at each type's rate."""
        return {key: narrowed(self.initial_spec(), rate) for key, rate in self.type_rates().items()}

    def init_state(self, population: Population, task: Task) -> None:
        """The model, whole, and who prunes it how far."""
        spec = self.initial_spec()
        self.pool.add(KEY, spec, models.initial_state(spec, self.seed))
        self.deal_types()
        self.layout = models.layout(spec)
        self.targets = [widths_at(spec, rate) for rate in self.type_rates().values()]  # channels that types keep
        self.kept = {group: one.expand(task.num_clients, -1).clone() for group, one in channels.whole(spec).items()}
        if self.starts_at_target:
            for client, own in enumerate(self.own.tolist()):
                for group, width in self.targets[own].items():
                    self.kept[group][client, width:] = False

    def target(self, client: int) -> dict[str, int]:
        """How many channels of each group a client is to keep."""
        return self.targets[self.own[client - 1]]

    def kept_by(self, client: int) -> channels.Kept:
        """The channels that a client keeps."""
        return {group: every[client - 1] for group, every in self.kept.items()}

    def part_cost(self, client: int) -> Cost:
        """Of the network of these channels."""
        return models.cost(models.resized(self.pool[KEY].spec, channels.widths(self.kept_by(client))))

    def part_effort(self, client: int) -> float:
        """Its MACs in parts of the whole model's."""
        return self.part_cost(client).forward_macs / self.pool[KEY].cost.forward_macs

    def template(self) -> State:
        """What a client keeps for itself: which channels, in bits."""
        return kept_bits(channels.whole(self.pool[KEY].spec))

    @property
    def bit_bytes(self) -> int:
        """A bit for each channel."""
        return sum(-(-every.shape[1] // 8) for every in self.kept.values())

    def client_tensors(self) -> list[ClientTensors]:
        """That."""
        given = self.log_dir, self.task.num_clients, {KEY: self.template()}
        own = OwnTensorsFrom(*given, self.first_kept) if self.starts_at_target else OwnTensors(*given)
        return [*super().client_tensors(), own]

    def first_kept(self, client: int) -> State:
        """What a client keeps that has not taken part yet, where it begins with a part of the model."""
        return kept_bits(self.kept_by(client))

    def newest(self, client: int) -> State:
        """What a client kept last."""
        found = self.handed[OwnTensors.kind].files.newest(KEY, client)
        assert found is not None  # it came with the state
        return found

    def weight(self, item: WorkItem) -> float:
        """By samples, or all clients alike."""
        return super().weight(item) if self.params.weighted else 1.0

    def covered(self, client: int, own: State, state: State) -> Mapping[str, Any]:
        """Which entries of the model a client hands in, bool by name: those of the channels that it keeps."""
        return channels.masks(self.layout, self.kept_by(client), state)

    def collect(self, round: int, update: Update, state: State) -> None:
        """Add what a client hands in to the mean of those who hold the same entries."""
        if self._mean is None:
            self._mean = CountMean(self.pool[KEY].state)
        own = self.newest(update.client)
        for group, one in channels_of(own, self.kept_by(update.client)).items():
            self.kept[group][update.client - 1] = one
        self._mean.add(state, self.covered(update.client, own, state), self.weight(update.item))

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Each entry's mean over the clients that hold it; what nobody holds stays as it is."""
        assert self._mean is not None  # somebody was collected
        self.pool.update(KEY, self._mean.result())
        self._mean = None
        self.record("effort", {update.client: update.item.effort for update in updates})

    def expected_shares(self) -> dict[str, float]:
        """All train the one model."""
        return {KEY: 1.0}

    def evaluation_plan(self) -> EvaluationPlan:
        """Every client is served its own version of the model, which is tested beside."""
        return EvaluationPlan([own_version(KEY)] * self.task.num_clients, {KEY: KEY})

    def state(self) -> tuple[State, dict[str, Any]]:
        """Which channels clients keep; the rest of what they keep has files."""
        return {f"{KEPT}{group}": every for group, every in self.kept.items()}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.kept = {group: tensors[f"{KEPT}{group}"].bool() for group in self.kept}


def kept_bits(kept: Mapping[str, torch.Tensor]) -> State:
    """What tells a client's channels, as it is kept and sent."""
    return {f"{KEPT}{group}": bits for group, bits in masks.pack(dict(kept)).items()}


def channels_of(own: State, like: Mapping[str, torch.Tensor]) -> channels.Kept:
    """The channels that ``own`` tells of, in the shapes of ``like``; all of them where it tells nothing."""
    return masks.unpack({name.removeprefix(KEPT): own[name] for name in own if name.startswith(KEPT)}, like)
