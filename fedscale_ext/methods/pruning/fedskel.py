"""FedSkel (Luo et al., CIKM 2021): clients update and exchange a skeleton of their network, its most active filters.

Every ``every`` rounds clients train the whole model and add up what each filter answers in magnitude (SetSkel); the
``share`` of each convolution's filters with the largest sums is the client's skeleton, as large as its type says. In
the other rounds (UpdateSkel) the forward pass is whole, gradients pass only skeleton filters, and only these are
exchanged: each filter becomes the mean over the participants whose skeletons hold it. All else stays the client's.

The public code (BUAA-CI-LAB) has the pruned backward pass, the measure (sums of a convolution's outputs in magnitude),
the choice of the skeleton and the download of its filters. It has no script that trains.

Departures from the paper and the public code:

* SetSkel exchanges the whole model. The public code's download changes weights of convolutions only, and leaves the
  client's linear layers and BatchNorm. Here each SetSkel overwrites them with the server's.
* A client that has no skeleton yet sets one in whatever round it first takes part.
* Of n filters, round(s n) are in a skeleton of share s, one at least. The public code keeps n - int((1 - s) n).
* A client is served its own network with the server's newest skeleton filters.
* Types say how much is updated, as FedSkel's forward pass is whole by design. Moss's text (section 5) has devices train
  only small models.

Traffic counts the filters of the skeleton, in SetSkel rounds the whole model and on its way up a bit for each filter.
MACs of a step are those of a whole forward pass and of the gradients: convolutions have them for skeleton filters only,
linear layers in full. What both sides really exchange and compute here is dense. Each client's network is kept in the
job's folder, as a device would.

Paper to code, section by section: docs/methods/pruning.md.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.method import (
    GLOBAL,
    About,
    ClientSamples,
    Count,
    Excludes,
    Feature,
    ModelSpec,
    MultiModelClient,
    Population,
    State,
    Task,
    UserError,
    WorkItem,
)
from fedscale_ext.methods.pruning import masks
from fedscale_ext.methods.pruning.masked_client import trainable
from fedscale_ext.methods.pruning.pruned_types import PrunedTypesAggregator, PrunedTypesParams
from fedscale_ext.models.counting import BATCH
from fedscale_ext.models.layers.hooks import hooked
from fedscale_ext.models.registry import skeleton

SKELETON = "skeleton/"  # begins the names of what tells which filters


@dataclass(frozen=True)
class FedSkelParams(PrunedTypesParams):
    """Hyperparameters of FedSkel.

    Attributes:
        param_ratio: Share of the filters in the skeleton of each type.
        match_params: Names or spec files of models, one per type. The skeletons' share of filters follows from their
            numbers of parameters.
        every: Rounds from one SetSkel to the next.

    """

    every: Count = 5

    method: ClassVar[str] = "fedskel"


def filters(model: nn.Module) -> dict[str, nn.Conv2d]:
    """The convolutions whose filters (rows of weights) a skeleton chooses from, by name."""
    return {name: part for name, part in model.named_modules() if isinstance(part, nn.Conv2d)}


def top(values: Tensor, share: float) -> Tensor:
    """The largest entries of a vector, of equal ones the first: bool [filters]."""
    chosen = values.argsort(descending=True, stable=True)[: masks.num_largest(len(values), share)]
    return torch.zeros(len(values), dtype=torch.bool, device=values.device).index_fill(0, chosen, True)


def skeleton_of(client_state: State, layers: Iterable[str], state: Mapping[str, Tensor]) -> State:
    """The filters of each layer that a client's state names, bool [filters] by layer.

    Args:
        client_state: The client's tensors; where it names no skeleton, all filters belong to it.
        layers: Names of the convolutions.
        state: Any state of the network, on the device of the result.

    Returns:
        bool [filters] by layer.

    """
    like = {name: state[f"{name}.weight"].flatten(1)[:, 0] for name in layers}
    return masks.unpack(client_state, like, SKELETON)


def backward_macs(spec: ModelSpec) -> dict[str, int]:
    """MACs per sample of the backward pass of each convolution, by name: the gradients of its weights and inputs."""
    model = skeleton(spec)
    macs: dict[str, int] = {}

    def count(name: str, layer: nn.Conv2d, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        gradients = layer.weight.requires_grad + inputs[0].requires_grad
        macs[name] = macs.get(name, 0) + gradients * output.numel() // BATCH * layer.weight[0].numel()

    for name, layer in filters(model).items():
        layer.register_forward_hook(partial(count, name))
    model.train()(torch.empty(BATCH, *spec["input_shape"], device="meta"))
    return macs


def rows(skeleton: State, parameters: Mapping[str, Tensor]) -> State:
    """A skeleton by parameter: of each layer's weight and bias, bool in a shape that broadcasts."""
    by_parameter = {}
    for layer, one in skeleton.items():
        for name in (f"{layer}.weight", f"{layer}.bias"):
            if name in parameters:
                by_parameter[name] = one.view(-1, *[1] * (parameters[name].dim() - 1))
    return by_parameter


@contextmanager
def answers(layers: Mapping[str, nn.Conv2d]) -> Iterator[dict[str, Tensor]]:
    """Sum up, in the block, the magnitudes of each layer's filters: float64 [filters] by layer."""
    sums = {name: torch.zeros(layer.out_channels, dtype=torch.float64) for name, layer in layers.items()}

    def add(name: str, _layer: nn.Module, _inputs: Any, output: Tensor) -> None:
        sums[name] += output.detach().abs().mean((2, 3)).sum(0).double().cpu()

    with hooked(layer.register_forward_hook(partial(add, name)) for name, layer in layers.items()):
        yield sums


@contextmanager
def only_skeleton(layers: Mapping[str, nn.Conv2d], skeleton: State) -> Iterator[None]:
    """Stop gradients, in the block, at filters outside of the skeleton: neither weights nor inputs get any."""

    def cut(name: str, _layer: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        return torch.where(skeleton[name].view(-1, 1, 1), output, output.detach())

    with hooked(layer.register_forward_hook(partial(cut, name)) for name, layer in layers.items()):
        yield


class SkeletonClient(MultiModelClient):
    """Client that trains the skeleton of its own network.

    ``conf.client_state`` has the client's whole state and its skeleton (empty before its first round: all filters).
    ``conf.objective["fedskel"]`` says whether this round ``set``s the skeleton, and to which ``share``.
    Clients train one after another: each has a skeleton of its own.
    """

    in_cohorts: ClassVar[bool] = False

    def load_personal_model(self, model: nn.Module, conf: ClientConfig) -> None:
        """Make ``model`` the client's network, with the server's filters where its skeleton is."""
        if not conf.client_state:
            return
        served = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict({name: conf.client_state[name] for name in served})
        parameters = trainable(model)
        with torch.no_grad():
            for name, inside in rows(skeleton_of(conf.client_state, filters(model), parameters), parameters).items():
                parameters[name].copy_(torch.where(inside, served[name], parameters[name]))

    def begin(self, model: nn.Module, conf: ClientConfig) -> None:
        """Make ``model``, as it was sent, the client's network, but where the client sets its skeleton."""
        settings = conf.objective.get("fedskel")
        if settings is None or not settings["set"]:
            super().begin(model, conf)

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train the whole model and set the skeleton (SetSkel), or train only the skeleton (UpdateSkel)."""
        layers, settings = filters(model), conf.objective.get("fedskel")
        if settings is not None and settings["set"]:
            with answers(layers) as sums_by_layer:
                figures = super().train(client_data, model, conf)
            skeleton = {name: top(sums, settings["share"]) for name, sums in sums_by_layer.items()}
        else:
            self.load_personal_model(model, conf)
            parameters = trainable(model)
            skeleton = skeleton_of(conf.client_state or {}, layers, parameters)
            inside = rows(skeleton, parameters)
            mask = {name: one.expand(parameters[name].shape) for name, one in inside.items()}
            with only_skeleton(layers, skeleton):
                figures = super().train(client_data, model, replace(conf, mask=mask))
        if conf.client_state is not None:
            network = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            figures["client_state"] = {**network, **masks.pack(skeleton, SKELETON)}
        return figures


class FedSkelAggregator(PrunedTypesAggregator):
    """Clients find the filters that answer most, and train and exchange these (FedSkel)."""

    about: ClassVar[About] = About("pruning", 2021)
    Params: ClassVar[type] = FedSkelParams
    Client: ClassVar[type] = SkeletonClient
    excludes: ClassVar[tuple[Excludes, ...]] = (Excludes(Feature.CHANGES, "starts clients from networks of their own"),)
    reestimates_by_default: ClassVar[bool] = False  # networks stay whole, and each client keeps its own

    def init_state(self, population: Population, task: Task) -> None:
        """Create the whole model; no client has a skeleton yet."""
        super().init_state(population, task)
        model = self.pool[GLOBAL]
        self._layers = filters(skeleton(model.spec))
        if not self._layers:
            raise UserError(
                f"fedskel chooses filters, and the model {self.args.model} has no convolution; take another"
            )
        self._backward_macs = backward_macs(model.spec)
        self.shares = [count / model.cost.parameters for count in self.type_parameters()]
        self._round = 0
        whole = model.cost.forward_macs
        weak = int((self.capacity < whole).sum())
        self.notice(
            f"each step of fedskel passes the whole model forward, {whole:,} MACs per sample, which {weak:,} of "
            f"{task.num_clients:,} clients do not afford; a type's share of the parameters is the share of each "
            "convolution's filters that it trains and sends, and no client has a network of a type's size"
        )
        if self.args.rounds == 1 or self.params.every == 1:
            self.notice(
                "no client trains only its skeleton in this job: all train the whole model in round 1, and again every "
                f"fedskel.every ({self.params.every}) rounds"
            )

    def template(self) -> State:
        """Tensors that a client keeps for itself: its network and its skeleton."""
        every = {name: torch.ones(layer.out_channels, dtype=torch.bool) for name, layer in self._layers.items()}
        return {**self.pool[GLOBAL].state, **masks.pack(every, SKELETON)}

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant set its skeleton (SetSkel), or train it (UpdateSkel)."""
        self._round = round
        return super().assign(round, participants)

    def sets(self, client: int, ahead: int = 0) -> bool:
        """Whether a client sets its skeleton in this round, or so many rounds ``ahead``."""
        return (self._round + ahead - 1) % self.params.every == 0 or not self.has_trained[client - 1]

    def item_of(self, client: int) -> WorkItem:
        """The work item of a client: the whole model, or its skeleton."""
        return self._item(client, self.sets(client))

    def next_items(self) -> list[WorkItem]:
        """Work items of all clients in the next round, in the order of their numbers."""
        return [self._item(client, self.sets(client, ahead=1)) for client in range(1, self.task.num_clients + 1)]

    def _item(self, client: int, sets: bool) -> WorkItem:
        cost, share = self.pool[GLOBAL].cost, self.shares[self.type_of[client - 1]]
        objective = {"fedskel": {"set": sets, "share": share}}
        if sets:
            bits = sum(-(-layer.out_channels // 8) for layer in self._layers.values())
            return WorkItem(client, GLOBAL, objective, bytes=cost.bytes, upload=cost.bytes + bits)
        backward, bytes = self._backward_share(share), self._skeleton_bytes(share)
        return WorkItem(
            client, GLOBAL, objective, compute_fraction=backward, forward_fraction=1.0 - backward, bytes=bytes
        )

    def _backward_share(self, share: float) -> float:
        """MACs of the backward pass, relative to the whole model's: convolutions compute those of skeleton filters."""
        cost, skipped = self.pool[GLOBAL].cost, 0.0
        for name, macs in self._backward_macs.items():
            count = self._layers[name].out_channels
            skipped += macs * (1 - masks.num_largest(count, share) / count)
        return 1 - skipped / (cost.training_macs - cost.forward_macs)

    def _skeleton_bytes(self, share: float) -> int:
        state = self.pool[GLOBAL].state
        return sum(
            state[name].nbytes // len(state[name]) * masks.num_largest(len(state[name]), share)
            for name in rows({name: torch.ones(layer.out_channels) for name, layer in self._layers.items()}, state)
        )

    def covered(self, client: int, client_state: State, state: State) -> Mapping[str, Any]:
        """Entries that a client returns: all of them, or the filters of its skeleton."""
        if self.sets(client):
            return dict.fromkeys(state)
        inside = rows(skeleton_of(client_state, self._layers, state), state)
        return {name: one.expand(state[name].shape) for name, one in inside.items()}

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return which clients have trained, and so have a skeleton, and the number of the last round."""
        return super().state()[0], {"round": self._round}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        super().load_state(tensors, data)
        self._round = int(data["round"])
