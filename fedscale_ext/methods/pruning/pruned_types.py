"""What the pruning baselines share whose devices come in types: one model, of which a device prunes as much as its type
asks, and what each client keeps of it (Hermes, TailorFL, FedMask, FedSkel).

Moss (IMWUT 2025, section 4.2) gives them "0.4x" and "0.05x ResNet-18" by number of parameters as the models of its
types (``param_ratio``), and calls these essentially as large as its MobileNetV2 and LeNet, which are 2 and 7 (or 100)
times smaller; ``match_params`` prunes to what these really have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.method import (
    GLOBAL,
    Bench,
    ClientState,
    ClientTensors,
    Cost,
    CountMean,
    EvaluationPlan,
    ModelSpec,
    Population,
    State,
    Task,
    Update,
    UserError,
    models,
    narrowed,
    personal_version,
)
from fedscale_ext.methods.device_types import DeviceTypesAggregator, type_key
from fedscale_ext.methods.groups import check_dealt
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.submodels import rate_of, widths_at

CHANNELS = "kept/"  # begins the names of what tells a client's channels
_HAS_TRAINED = "has_trained"


@dataclass(frozen=True)
class PrunedTypesParams:
    """Hyperparameters of methods that prune one model for each type of device.

    A device has the largest type whose MACs it affords. ``groups`` or ``ranges`` deal the types otherwise.

    Attributes:
        param_ratio: Share of the model's parameters that the devices of each type keep.
        match_params: Names or spec files of models, one per type, whose numbers of parameters the types keep. They
            replace ``param_ratio``.
        groups: Number of clients of each type, in the order of the types. The first in the order of ``groups_by`` get
            the type of fewest MACs.
        ranges: Clients of each type, as 1-100, by their positions in the data. The order is that of the types.
        weighted: Clients weigh by their training samples. Without it, all weigh alike.

    """

    param_ratio: tuple[float, ...] = (1.0, 0.4, 0.05)
    match_params: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    ranges: tuple[str, ...] = ()
    weighted: bool = True

    method: ClassVar[str]

    def __post_init__(self) -> None:
        if not self.match_params:
            share_list(f"{self.method}.param_ratio", self.param_ratio)
        key = "match_params" if self.match_params else "param_ratio"
        check_dealt(self.method, key, self.keys, self.groups, self.ranges)

    @property
    def keys(self) -> list[str]:
        """Keys of the types."""
        if self.match_params:
            return [type_key(name) for name in self.match_params]
        return ratio_keys(self.param_ratio)


def ratio_keys(shares: Sequence[float]) -> list[str]:
    """Return the keys of types that have these shares of the model's parameters."""
    return [f"x{share:g}" for share in shares]


def share_list(key: str, shares: tuple[float, ...]) -> None:
    """Raise UserError unless there are shares, all of them in (0, 1]."""
    if not shares or not all(0 < share <= 1 for share in shares):
        raise UserError(f"{key} is {list(shares)}; it must hold a share above 0 and at most 1 for each type")


class PrunedTypesAggregator(DeviceTypesAggregator):
    """Base of methods whose types prune one model; their ``Params`` extend :class:`PrunedTypesParams`.

    ``active``: the channels that each client keeps, bool [clients, C] by channel group. A client begins with all of
    them, or, where ``starts_at_target``, with the leading ones of its type's size. ``has_trained``: the clients that
    have taken part, bool [clients]. ``narrowing`` says, after "each
    client", when one that begins with all becomes smaller; where it is empty, the method reports first rounds itself.
    """

    starts_at_target: bool = False
    narrowing: ClassVar[str] = ""

    reduces: ClassVar[bool] = False
    keeps_weights: ClassVar[bool] = False
    reestimates_by_default: ClassVar[bool] = True  # means of those of differently pruned networks fit none of them

    _mean: CountMean | None = None  # of this round's clients

    @property
    def keys(self) -> list[str]:
        """Keys of the types."""
        keys: list[str] = self.params.keys
        return keys

    def one_way(self) -> np.ndarray:
        """Bytes of the type's network, whatever part of it travels: float64 [clients]."""
        return np.array([cost.bytes for cost in self.costs], dtype=np.float64)[self.type_of]

    def kept_share(self) -> np.ndarray:
        """Share of the parameters on each client's active channels, float64 [clients].

        It is 1 until a client has pruned, and where networks stay whole (FedSkel).
        """
        parts = [self.part_cost(client + 1).parameters for client in range(self.task.num_clients)]
        return np.array(parts, dtype=np.float64) / self.pool[GLOBAL].cost.parameters

    def personal_bytes(self) -> Sequence[float]:
        """Bytes of the network of each client's active channels, index client - 1."""
        return [float(self.part_cost(client + 1).bytes) for client in range(self.task.num_clients)]

    def type_rates(self) -> dict[str, float]:
        """Rate of channels that leaves each type its number of parameters, by key."""
        spec = self.initial_spec()
        counts = self.type_parameters()
        return {key: rate_of(spec, count) for key, count in zip(self.keys, counts, strict=True)}

    def type_parameters(self) -> list[float]:
        """Number of parameters that each type is to keep."""
        p, every = self.params, models.cost(self.initial_spec()).parameters
        if p.match_params:
            counts = [models.cost(self._configured(name)).parameters for name in p.match_params]
            for name, count in zip(p.match_params, counts, strict=True):
                if count > every:
                    raise UserError(
                        f"{p.method}.match_params has {name} with {count:,} parameters, but the model that "
                        f"is pruned, {self.args.model}, has {every:,}; name smaller ones"
                    )
            return [float(count) for count in counts]
        return [ratio * every for ratio in p.param_ratio]

    def type_specs(self) -> dict[str, ModelSpec]:
        """Spec of the model at each type's rate, by key."""
        return {key: narrowed(self.initial_spec(), rate) for key, rate in self.type_rates().items()}

    def init_state(self, population: Population, task: Task) -> None:
        """Create the whole model, and choose how far each client prunes it."""
        spec = self.initial_spec()
        self.pool.add(GLOBAL, spec, models.initial_state(spec, self.seed))
        self.deal_types()
        self.layout = models.layout(spec)
        self.targets = [widths_at(spec, rate) for rate in self.type_rates().values()]  # channels that types keep
        self.active = {group: one.expand(task.num_clients, -1).clone() for group, one in channels.whole(spec).items()}
        self.has_trained = torch.zeros(task.num_clients, dtype=torch.bool)
        if not self.starts_at_target:
            self._report_first_rounds()
        else:
            for client, index in enumerate(self.type_of.tolist()):
                for group, width in self.targets[index].items():
                    self.active[group][client, width:] = False

    def _report_first_rounds(self) -> None:
        """Report the clients that do not afford the whole model, with which each begins."""
        whole = self.pool[GLOBAL].cost
        weak = self.count_beyond(whole.forward_macs)
        if weak and self.narrowing and any(cost.parameters < whole.parameters for cost in self.costs):
            self.notice(
                f"each client begins with the whole model, {whole.forward_macs:,} MACs per sample, which {weak:,} of "
                f"{self.task.num_clients:,} clients do not afford, and {self.narrowing}"
            )

    def target(self, client: int) -> dict[str, int]:
        """Number of channels that a client is to keep, by group."""
        return self.targets[self.type_of[client - 1]]

    def active_channels(self, client: int) -> channels.Active:
        """Active channels of a client, bool [C] by group."""
        return {group: every[client - 1] for group, every in self.active.items()}

    def part_cost(self, client: int) -> Cost:
        """Cost of the network of a client's active channels."""
        return models.cost(models.resized(self.pool[GLOBAL].spec, channels.widths(self.active_channels(client))))

    def part_fractions(self, client: int) -> tuple[float, float]:
        """MACs of a step of that network: :func:`step_fractions`."""
        return step_fractions(self.part_cost(client), self.pool[GLOBAL].cost)

    def template(self) -> State:
        """Tensors that a client keeps for itself: its active channels, in bits."""
        return pack_channels(channels.whole(self.pool[GLOBAL].spec))

    @property
    def bit_bytes(self) -> int:
        """Bytes of a bit for each channel."""
        return sum(-(-every.shape[1] // 8) for every in self.active.values())

    def client_tensors(self) -> list[ClientTensors]:
        """Keep each client's active channels from round to round."""
        start = self.first_channels if self.starts_at_target else None
        self.client_channels = ClientState(self.log_dir, self.task.num_clients, {GLOBAL: self.template()}, start)
        return [*super().client_tensors(), self.client_channels]

    def first_channels(self, client: int) -> State:
        """Tensors of a client before its first round, where it begins with a part of the model."""
        return pack_channels(self.active_channels(client))

    def newest(self, client: int) -> State:
        """Tensors that a client kept last."""
        tensors = self.client_channels.files.newest(GLOBAL, client)
        assert tensors is not None  # it came with the state
        return tensors

    def covered(self, client: int, client_state: State, state: State) -> Mapping[str, Any]:
        """Entries of the model that a client returns, bool by name: those of its active channels."""
        return channels.masks(self.layout, self.active_channels(client), state)

    def collect(self, round: int, update: Update, state: State) -> None:
        """Add a client's state to the mean of those who hold the same entries."""
        if self._mean is None:
            self._mean = CountMean(self.to_average(self.pool[GLOBAL].state))
        client_state = self.newest(update.client)
        for group, one in unpack_channels(client_state, self.active_channels(update.client)).items():
            self.active[group][update.client - 1] = one
        covered = self.covered(update.client, client_state, state)
        self._mean.add(self.to_average(state), covered, self.weight(update.item))

    def to_average(self, state: State) -> State:
        """What is averaged of a state: the state itself."""
        return state

    def averaged(self, mean: State) -> State:
        """The model's state from the mean of what :meth:`to_average` gives."""
        return mean

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Take each entry's mean over the clients that hold it; other entries stay as they are."""
        assert self._mean is not None  # somebody was collected
        self.has_trained[[update.client - 1 for update in updates]] = True
        self.pool.update(GLOBAL, self.averaged(self._mean.result()))
        self._mean = None
        self.record("compute_fraction", {update.client: self.work_done(update).compute_fraction for update in updates})

    def expected_shares(self) -> dict[str, float]:
        """All clients train the one model."""
        return {GLOBAL: 1.0}

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client its own version of the model; test the whole model beside."""
        return EvaluationPlan([personal_version(GLOBAL)] * self.task.num_clients, {GLOBAL: GLOBAL})

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return the clients' active channels, and which have trained. Their other tensors have files of their own."""
        active = {f"{CHANNELS}{group}": every for group, every in self.active.items()}
        return {**active, _HAS_TRAINED: self.has_trained}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.active = {group: tensors[f"{CHANNELS}{group}"].bool() for group in self.active}
        self.has_trained = tensors[_HAS_TRAINED].bool()


def step_fractions(part: Cost, whole: Cost) -> tuple[float, float]:
    """MACs of a step of a part of the model, relative to the whole model's: a work item's ``compute_fraction`` and
    ``training_fraction``."""
    return part.forward_macs / whole.forward_macs, part.training_macs / whole.training_macs


def pack_channels(active: Mapping[str, torch.Tensor]) -> State:
    """Active channels as bits, to be stored and sent: uint8 by name."""
    return masks.pack(active, CHANNELS)


def unpack_channels(client_state: State, like: Mapping[str, torch.Tensor]) -> channels.Active:
    """Active channels from a client's tensors; inverse of :func:`pack_channels`.

    Args:
        client_state: The client's tensors; empty before its first round.
        like: Tensors of the result's shapes and device, by group.

    Returns:
        bool [C] by group; all ones where ``client_state`` has no channels.

    """
    return masks.unpack(client_state, like, CHANNELS)


def channels_of(conf: ClientConfig, bench: Bench) -> channels.Active:
    """The channels that a client may use: all of them before its first round."""
    return unpack_channels(conf.client_state or {}, channels.whole(bench.spec(conf.model_key)))
