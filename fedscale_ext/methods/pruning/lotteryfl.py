"""LotteryFL (Li et al. 2020, Algorithm 1): each client finds its own subnetwork, a lottery ticket, and trains that.

Departures from the paper and the public code:

* Clients judge the masked global model on a validation part of their own training samples, on which they do not train.
  The public code makes such a part, a tenth, but looks at test samples instead.
* Weights of convolutions and linear layers are pruned, a whole number of each layer's survivors; the public code
  compares with a percentile, and prunes what has "weight" in its name (BatchNorm's too). All parameters rewind.
* Only the mask decides what is pruned. The public code also freezes weights that are nearly zero.
* The public code adds up the clients' masks in the memory of the first one.
* Clients begin with the whole model. Moss's text (section 5) has it that a device "only trains the small model": with
  ``param_ratio``, devices come in types, and a client's first mask is the leading channels of its type's size.

Unstructured masks save bytes, not MACs: dense kernels compute zeros too. A client's traffic counts its surviving
weights, what is never pruned, and its mask in bits. It counts in both directions, by the mask at the round's start.
What both sides really exchange here is dense. Training starts from the global model's BatchNorm statistics. Before a
client's network is tested, they are measured on the client's own training samples.

Paper to code, section by section: docs/methods/pruning.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.parts import part_of
from fedscale_ext.core.types import Entries
from fedscale_ext.method import (
    GLOBAL,
    About,
    ClientSamples,
    ClientState,
    ClientTensors,
    CountMean,
    EvaluationPlan,
    Excludes,
    Feature,
    FractionBelowOne,
    ModelSpec,
    OpenFraction,
    Population,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
    models,
    narrowed,
    personal_version,
)
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.groups import check_dealt, check_total, deal
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.methods.pruning.masked_client import (
    MaskedClient,
    initial_weights,
    trainable,
    validation_passes,
)
from fedscale_ext.methods.pruning.pruned_types import ratio_keys, share_list, step_fractions
from fedscale_ext.methods.type_figures import TypeFiguresAggregator
from fedscale_ext.submodels import rate_of, widths_at


@dataclass(frozen=True)
class LotteryFLParams:
    """Hyperparameters of LotteryFL.

    A client prunes if its masked global model passes ``threshold`` on its validation samples and it keeps more than
    ``target`` of its weights. The surviving weights then go back to their initial values.

    Attributes:
        threshold: Accuracy (0 to 1) on a client's validation samples above which it prunes. The paper has 0.5; the
            public code's examples have 0.2, on UCI HAR 0.7.
        target: Share of its weights at or below which a client stops pruning. With ``param_ratio``, it is a share of
            the type's weights.
        step: Share of each layer's surviving weights that a client prunes at a time, the smallest in magnitude. The
            public code's default is 0.1; its examples have 0.2, on UCI HAR 0.3.
        validation: Share of a client's training samples that it holds out as validation samples.
        weighted: Clients weigh by their training samples. The public code weighs all alike.
        param_ratio: Share of the model's parameters with which the clients of each type begin. It goes with ``groups``.
        groups: Number of clients of each type. The smallest type is dealt first.

    """

    threshold: FractionBelowOne = 0.5
    target: FractionBelowOne = 0.5
    step: OpenFraction = 0.1
    validation: OpenFraction = 0.1
    weighted: bool = False
    param_ratio: tuple[float, ...] = ()
    groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.param_ratio) != bool(self.groups):
            raise UserError("lotteryfl.param_ratio and lotteryfl.groups go together; give both, or remove one")
        if self.param_ratio:
            share_list("lotteryfl.param_ratio", self.param_ratio)
            check_dealt("lotteryfl", "param_ratio", ratio_keys(self.param_ratio), self.groups)


class LotteryClient(MaskedClient):
    """Prunes single weights of its model, and rewinds the others (Algorithm 1, ClientUpdate).

    ``conf.client_state`` is the client's mask m_c in bits (empty before its first round: all ones).
    ``conf.objective["ticket"]`` has the thresholds, if the client takes part in a round. A client that fine-tunes its
    served model (``personalise_epochs``) has a mask and no ticket. It trains its surviving weights on all of its
    training samples, and does not prune.
    """

    def mask(self, parameters: Mapping[str, Tensor], conf: ClientConfig) -> State:
        """m_c, only of weights."""
        return masks.unpack(conf.client_state or {}, masks.prunable(parameters))

    def start_masked(self, data: ClientSamples, model: nn.Module, conf: ClientConfig) -> tuple[State, State]:
        """Mask the model, and prune and rewind where the model is good enough.

        BatchNorm's running statistics stay the global ones: they are no weights to rewind.
        """
        parameters = trainable(model)
        weights = masks.prunable(parameters)
        mask, ticket = self.mask(parameters, conf), conf.objective.get("ticket")
        masks.apply(mask, weights)
        if ticket is not None:
            left = masks.survivors(mask) / sum(weight.numel() for weight in weights.values())
            if left > ticket["target"] and self.accuracy(data, model, conf) > ticket["threshold"]:
                mask = masks.pruned(mask, weights, ticket["step"])
                theta = initial_weights(self.bench.spec(conf.model_key), conf.seed)
                with torch.no_grad():
                    for name, parameter in parameters.items():
                        parameter.copy_(theta[name])
                masks.apply(mask, weights)
        return mask, masks.pack(mask)


class LotteryFLAggregator(TypeFiguresAggregator, FedAvgAggregator):
    """Clients prune one model to subnetworks of their own, which overlap in the server's mean (LotteryFL)."""

    about: ClassVar[About] = About("pruning", 2020)
    Params: ClassVar[type] = LotteryFLParams
    Client: ClassVar[type] = LotteryClient
    reduces: ClassVar[bool] = False
    keeps_weights: ClassVar[bool] = False
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.CHANGES, "starts clients from masked or initial weights"),
    )
    reestimates_by_default: ClassVar[bool] = True  # means of those of differently pruned networks fit none of them

    _mean: CountMean | None = None  # of this round's clients

    def initial_state(self, spec: ModelSpec) -> State:
        """Random weights, to which clients go back: each draws them itself, so none that a job names can be theirs."""
        return models.initial_state(spec, self.seed)

    def init_state(self, population: Population, task: Task) -> None:
        """Create theta_0 (Algorithm 1); every mask is all ones, or a type's leading channels."""
        super().init_state(population, task)
        self._all = sum(weight.numel() for weight in self._weights().values())
        self.type_of = np.zeros(task.num_clients, dtype=np.int64)
        self.starts = [masks.unpack({}, self._weights())]
        self.fractions = [step_fractions(self.pool[GLOBAL].cost, self.pool[GLOBAL].cost)]  # of types, of a step
        if self.params.param_ratio:
            self._deal_types()
        counts = [masks.survivors(start) for start in self.starts]  # weights with which types begin
        self.targets = [part_of(self.params.target, count) / self._all for count in counts]  # shares of all weights
        self.first_left = torch.tensor(counts)[torch.from_numpy(self.type_of)]  # weights with which each client begins
        self.left = self.first_left.clone()  # surviving weights of each client

    def report_clients_beyond_capacity(self) -> None:
        """Report the clients that do not afford the whole model, with which they begin; types are dealt later."""
        if not self.params.param_ratio:
            super().report_clients_beyond_capacity()

    def _deal_types(self) -> None:
        """Deal the types' first masks to clients."""
        p, model = self.params, self.pool[GLOBAL]
        check_total("lotteryfl.groups", p.groups, self.task.num_clients)
        layout, whole = models.layout(model.spec), channels.whole(model.spec)
        rates = [rate_of(model.spec, ratio * model.cost.parameters) for ratio in p.param_ratio]
        self.starts = []
        for widths in (widths_at(model.spec, rate) for rate in rates):
            active = {group: torch.arange(len(one)) < widths[group] for group, one in whole.items()}
            self.starts.append(channels.masks(layout, active, self._weights()))
        costs = [models.cost(narrowed(model.spec, rate)) for rate in rates]
        forward = [cost.forward_macs for cost in costs]
        self.fractions = [step_fractions(cost, model.cost) for cost in costs]
        self.type_of = deal(self.dealing_order(), np.array(forward), p.groups)
        self.report_types_beyond_capacity(forward, "lotteryfl.groups")

    def type_names(self) -> Sequence[str]:
        """Names of the types; without types, all clients prune the one model from the whole."""
        return ratio_keys(self.params.param_ratio) or [GLOBAL]

    def one_way(self) -> np.ndarray:
        """Bytes of the whole model, as of other systems that prune: float64 [clients]."""
        return np.full(self.task.num_clients, self.pool[GLOBAL].cost.bytes, dtype=np.float64)

    def kept_share(self) -> np.ndarray:
        """Share of surviving weights and of what is never pruned, float64 [clients]."""
        every = self.pool[GLOBAL].cost.parameters
        shares: np.ndarray = 1 - (self._all - self.left.numpy()) / every
        return shares

    def client_tensors(self) -> list[ClientTensors]:
        """Keep each client's mask m_c, in bits."""
        ones = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in self._weights().items()}
        start = self._first_mask if self.params.param_ratio else None
        self.client_masks = ClientState(self.log_dir, self.task.num_clients, {GLOBAL: masks.pack(ones)}, start)
        return [*super().client_tensors(), self.client_masks]

    def _first_mask(self, client: int) -> State:
        return masks.pack(self.starts[self.type_of[client - 1]])

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant train its part of the global model."""
        return [self.item_of(client) for client in participants.tolist()]

    def item_of(self, client: int) -> WorkItem:
        """The work item of a client: its part of the model, as it is now."""
        p, type_index = self.params, self.type_of[client - 1]
        ticket = {"threshold": p.threshold, "target": self.targets[type_index], "step": p.step}
        overrides, passes = {"held_out": p.validation}, 0.0
        compute, training = self.fractions[type_index]
        if int(self.left[client - 1]) / self._all > ticket["target"]:
            passes = validation_passes(self.task, client, p.validation, self.pool[GLOBAL].state)
        return WorkItem(
            client,
            GLOBAL,
            {"ticket": ticket},
            overrides,
            compute_fraction=compute,
            training_fraction=training,
            forward_fraction=compute * passes,
            bytes=self._bytes(client),
        )

    def _bytes(self, client: int) -> int:
        """Bytes of the surviving values, of what is never pruned, and of the mask."""
        gone, bits = self._all - int(self.left[client - 1]), -(-self._all // 8)
        itemsize = next(iter(self._weights().values())).itemsize
        return self.pool[GLOBAL].cost.bytes - gone * itemsize + bits

    def collect(self, round: int, update: Update, state: State) -> None:
        """Add w_c * m_c where m_c covers (Algorithm 1, server)."""
        if self._mean is None:
            self._mean = CountMean(self.pool[GLOBAL].state)
        packed = self.client_masks.files.newest(GLOBAL, update.client)
        assert packed is not None  # it came with the state
        mask = masks.unpack(packed, self._weights())
        covered: dict[str, Entries] = {**dict.fromkeys(state), **mask}
        self._mean.add(state, covered, self.weight(update.item))
        self.left[update.client - 1] = masks.survivors(mask)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Take each entry's mean over the masks that cover it; other entries stay as they are."""
        assert self._mean is not None  # somebody was collected
        self.pool.update(GLOBAL, self._mean.result())
        self._mean = None
        self.record("left", {update.client: int(self.left[update.client - 1]) / self._all for update in updates})

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client its own part of the global model; test the whole beside."""
        return EvaluationPlan([personal_version(GLOBAL)] * self.task.num_clients, {GLOBAL: GLOBAL})

    def unfinished_notice(self) -> str | None:
        """Tell if no client has pruned."""
        if (self.left != self.first_left).any():
            return None
        return (
            f"no client has pruned: that takes an accuracy above {self.params.threshold:g}, lotteryfl.threshold, on "
            "its validation samples"
        )

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return how many weights of each client survive; masks have files of their own."""
        return {"left": self.left}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.left = tensors["left"]

    def _weights(self) -> State:
        model = self.pool[GLOBAL]
        return masks.prunable({name: model.state[name] for name in models.parameter_names(model.spec)})
