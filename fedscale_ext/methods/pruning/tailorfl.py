"""TailorFL (Deng et al., SenSys 2022): devices tailor submodels by what they can compute and by their data.

No public code is known. This follows the paper as specs of the baselines sum it up, and decides what that leaves open.

* A channel's importance is a gate that scales it for its readers. Gates are learnt with the weights by the job's
  optimiser, under an L1 penalty (``sparsity``). A client trains the whole model in its first round. Then it keeps its
  type's number of channels of each group, those with the largest gates. Gates stay the client's own, and are part of
  its served model.
* The server averages what submodels hold in common. Each is weighed by the share of the parameters that it keeps (and
  by its samples, if ``weighted``).
* The server tunes the participants' structures. A channel's importance becomes ``tuning`` parts the mean over the other
  participants. They are weighed by how alike their gates are: the cosine of their differences from the participants'
  mean, where that is positive. Then the client's type's number of channels is chosen anew. A channel that comes back
  has the server's weights.

Traffic counts the entries of the submodel and a bit for each channel, and gates on their way up. In a client's first
round the whole model counts on the way down. MACs are those of the submodel. What both sides compute and exchange here
is dense.

Paper to code, section by section: docs/methods/pruning.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.method import (
    GLOBAL,
    About,
    ClientSamples,
    Excludes,
    Feature,
    Fraction,
    MultiModelClient,
    NotNegative,
    State,
    Update,
    WorkItem,
    models,
)
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.methods.pruning.masked_client import trainable
from fedscale_ext.methods.pruning.pruned_types import (
    PrunedTypesAggregator,
    PrunedTypesParams,
    pack_channels,
    unpack_channels,
)
from fedscale_ext.training.optimizers.choice import optimizer_of
from fedscale_ext.training.outcome import result

GATE = "gate/"  # begins the names of the gates


@dataclass(frozen=True)
class TailorFLParams(PrunedTypesParams):
    """Hyperparameters of TailorFL.

    Attributes:
        sparsity: Weight of the gates' L1 norm in the loss.
        tuning: How far the server moves a client's structure towards those of clients with similar gates, from 0 to 1.
        weighted: Clients weigh by their training samples, too. Without it, they weigh only by the share of the
            parameters that they keep.

    """

    sparsity: NotNegative = 1e-4
    tuning: Fraction = 0.5

    method: ClassVar[str] = "tailorfl"


class TailorClient(MultiModelClient):
    """Client whose channels pass gates, which it learns with the weights and keeps.

    ``conf.client_state`` has the gates and the active channels (empty before the first round: gates of 1, all
    channels). ``conf.objective["tailor"]`` has the ``target`` number of channels of each group and the ``sparsity`` of
    gates, if the client takes part in a round. Clients train one after another, because each has gates of its own.
    """

    in_cohorts: ClassVar[bool] = False

    def _client_state(self, conf: ClientConfig) -> tuple[channels.Active, dict[str, Tensor]]:
        whole = channels.whole(self.bench.spec(conf.model_key))
        client_state: State = conf.client_state or {}
        gates = {group: client_state.get(f"{GATE}{group}", torch.ones(len(one))) for group, one in whole.items()}
        return unpack_channels(client_state, whole), gates

    def load_personal_model(self, model: nn.Module, conf: ClientConfig) -> None:
        """Make ``model`` the client's: its active channels, behind their gates."""
        (active, gates), parameters = self._client_state(conf), trainable(model)
        layout = models.layout(self.bench.spec(conf.model_key))
        masks.apply(channels.masks(layout, active, parameters), parameters)
        _write(parameters, channels.gated(layout, _like(gates, parameters), parameters))

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train weights and gates together; a client that is still whole then prunes to its target."""
        layout, settings = models.layout(self.bench.spec(conf.model_key)), conf.objective.get("tailor")
        (active, gates), parameters = self._client_state(conf), trainable(model)
        gates = {group: one.clone().requires_grad_() for group, one in _like(gates, parameters).items()}
        mask = channels.masks(layout, active, parameters)
        masks.apply(mask, parameters)
        model.train()
        names, sparsity = list(parameters), 0.0 if settings is None else settings["sparsity"]
        steps = optimizer_of(conf).begin(list(parameters.values()), None, [mask[name] for name in names])
        bare = replace(conf, client_weight_decay=0.0)  # gates of other channels stay, too
        passed = optimizer_of(bare).begin(
            list(gates.values()), None, [active[group].to(_device(model)) for group in gates]
        )
        losses = []
        for x, y in self.seen(client_data, conf):
            network = partial(functional_call, model, channels.gated(layout, gates, parameters))
            loss = self.losses(self.output(network, x, client_data, conf), y)
            total = loss.mean() + sparsity * torch.stack([one.abs().sum() for one in gates.values()]).sum()
            trained = [*parameters.values(), *gates.values()]
            gradients = list(torch.autograd.grad(total, trained, allow_unused=True, materialize_grads=True))
            steps.step(list(parameters.values()), gradients[: len(names)])
            passed.step(list(gates.values()), gradients[len(names) :])
            losses.append(loss.detach())
        figures = result(conf, len(client_data), losses)
        if settings is not None and not conf.client_state:
            active = channels.strongest({group: one.detach().abs() for group, one in gates.items()}, settings["target"])
            masks.apply(channels.masks(layout, active, parameters), parameters)
        if settings is None:  # fine-tuned for itself: what is tested is its own network
            _write(parameters, channels.gated(layout, gates, parameters))
        if conf.client_state is not None:
            learnt = {f"{GATE}{group}": one.detach() for group, one in gates.items()}
            figures["client_state"] = {**pack_channels(active), **learnt}
        return {**figures, "update_weight": model.state_dict()}


@torch.no_grad()
def _write(parameters: State, tensors: State) -> None:
    for name, tensor in tensors.items():
        parameters[name].copy_(tensor)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _like(gates: dict[str, Tensor], parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    first = next(iter(parameters.values()))
    return {group: one.to(first) for group, one in gates.items()}


def tuned(profiles: Tensor, share: float) -> Tensor:
    """Move importances towards those of similar clients.

    Weights are the positive cosines of the clients' differences from their mean. A client that resembles no other stays
    as it is.

    Args:
        profiles: Importances [clients, channels].
        share: How far they move.

    Returns:
        The tuned importances [clients, channels].

    """
    apart = profiles - profiles.mean(0)
    unit = apart / apart.norm(dim=1, keepdim=True).clamp(min=1e-12)
    alike = (unit @ unit.T).clamp(min=0.0).fill_diagonal_(0.0)
    total = alike.sum(1, keepdim=True)
    others = torch.where(total > 0, alike @ profiles / total.clamp(min=1e-12), profiles)
    return (1 - share) * profiles + share * others


class TailorFLAggregator(PrunedTypesAggregator):
    """Clients keep the channels that their data and their device ask for; the server tunes which (TailorFL)."""

    about: ClassVar[About] = About("pruning", 2022)
    Params: ClassVar[type] = TailorFLParams
    Client: ClassVar[type] = TailorClient
    narrowing: ClassVar[str] = "chooses after its first round which channels it keeps"
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.CHANGES, "starts clients from their own part of the model"),
    )

    def template(self) -> State:
        """Tensors that a client keeps for itself: active channels, and gates."""
        gates = {f"{GATE}{group}": torch.ones(every.shape[1]) for group, every in self.active.items()}
        return {**super().template(), **gates}

    def item_of(self, client: int) -> WorkItem:
        """The work item of a client: its submodel, or in its first round the whole model."""
        objective = {"tailor": {"target": self.target(client), "sparsity": self.params.sparsity}}
        whole = self.pool[GLOBAL].cost.bytes
        gates = sum(4 * every.shape[1] for every in self.active.values())
        first, part = not self.has_trained[client - 1], self.part_cost(client)
        down = whole if first else part.bytes + self.bit_bytes
        up = (self.costs[self.type_of[client - 1]].bytes if first else part.bytes) + self.bit_bytes
        compute, training = self.part_fractions(client)
        return WorkItem(
            client,
            GLOBAL,
            objective,
            compute_fraction=compute,
            training_fraction=training,
            bytes=down,
            upload=up + gates,
        )

    def weight(self, item: WorkItem) -> float:
        """The weight of the base times the share of the parameters that the client keeps."""
        return super().weight(item) * self.part_cost(item.client).parameters / self.pool[GLOBAL].cost.parameters

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Take the mean where submodels overlap; then tune the participants' structures."""
        super().aggregate(round, updates, means)
        if self.params.tuning == 0 or len(updates) < 2:
            return
        files, before = self.client_channels.files, [update.client for update in updates]
        newest = {client: self.newest(client) for client in before}
        lengths = [every.shape[1] for every in self.active.values()]
        profiles = torch.stack([
            torch.cat([newest[client][f"{GATE}{group}"].abs().double() for group in self.active]) for client in before
        ])  # fmt: skip
        moved = 0
        for client, importance in zip(before, tuned(profiles, self.params.tuning), strict=True):
            scores = dict(zip(self.active, importance.split(lengths), strict=True))
            active = channels.strongest(scores, self.target(client))
            moved += sum(int((one & ~self.active[group][client - 1]).sum()) for group, one in active.items())
            for group, one in active.items():
                self.active[group][client - 1] = one
            files.write(round, GLOBAL, client, {**newest[client], **pack_channels(active)})
        files.end_round()
        self.record("channels_moved", moved)
