"""TailorFL (Deng et al., SenSys 2022): devices tailor submodels by what they can compute and by their data.

No public code is known: what is built follows the paper as specs of the baselines sum it up, and decides what that
leaves open.

* Importance of a channel is a gate that it passes on its way to whoever reads it, learnt with the weights by the job's
  optimiser under an L1 penalty (``sparsity``). A client trains the whole model in its first round, then keeps its
  type's number of channels of each group, those with the largest gates. Gates stay the client's own, and are part of
  the model that it is served.
* The server averages what submodels hold in common, each weighed by the share of the parameters that it keeps (and by
  its samples, if ``weighted``).
* The server tunes the structures of those who took part: a channel's importance becomes ``tuning`` parts the mean over
  the other participants, weighed by how alike their gates are (the cosine of their differences from the participants'
  mean, where that is positive), and the client's type's number of channels is chosen anew. A channel that comes back
  has the server's weights.

Traffic counts the entries of the submodel and a bit for each channel, and gates on their way up, the whole model on
the way down in a client's first round; MACs are those of the submodel. What both sides compute and exchange here is
dense.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedscale_ext.method import Excludes, Feature, NotNegative, OwnTensors, Share, State, Update, WorkItem
from fedscale_ext.methods.pruning import channels
from fedscale_ext.methods.pruning.pruned_types import KEY, PrunedTypesAggregator, PrunedTypesParams, kept_bits
from fedscale_ext.methods.pruning.tailorfl_client import GATE, TailorExecutor


@dataclass(frozen=True)
class TailorFLParams(PrunedTypesParams):
    """``param_ratio`` or ``match_params``: how much of the model the types keep; ``groups`` or ``ranges`` who has
    which, as Moss's. ``sparsity`` weighs the gates' L1 norm in the loss; ``tuning``, from 0 to 1: how far the server
    moves a client's structure towards those of clients with similar gates. ``weighted`` weighs clients by samples, too.
    """

    sparsity: NotNegative = 1e-4
    tuning: Share = 0.5

    method: ClassVar[str] = "tailorfl"


def tuned(profiles: Tensor, share: float) -> Tensor:
    """Importances [clients, channels] moved by ``share`` towards those of similar clients: weights are the cosines of
    what tells the clients apart, such as are positive. Who is like nobody stays as it is."""
    apart = profiles - profiles.mean(0)
    unit = apart / apart.norm(dim=1, keepdim=True).clamp(min=1e-12)
    alike = (unit @ unit.T).clamp(min=0.0).fill_diagonal_(0.0)
    total = alike.sum(1, keepdim=True)
    others = torch.where(total > 0, alike @ profiles / total.clamp(min=1e-12), profiles)
    return (1 - share) * profiles + share * others


class TailorFLAggregator(PrunedTypesAggregator):
    """Clients keep the channels that their data and their device ask for; the server tunes which (TailorFL)."""

    Params: ClassVar[type] = TailorFLParams
    Executor: ClassVar[type] = TailorExecutor
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.CHANGES, "starts clients from their own part of the model"),
    )

    def template(self) -> State:
        """Which channels, and the gates."""
        gates = {f"{GATE}{group}": torch.ones(every.shape[1]) for group, every in self.kept.items()}
        return {**super().template(), **gates}

    def item_of(self, client: int) -> WorkItem:
        """Its submodel; in its first round, the whole model."""
        objective = {"tailor": {"target": self.target(client), "sparsity": self.params.sparsity}}
        whole = self.pool[KEY].cost.bytes
        gates = sum(4 * every.shape[1] for every in self.kept.values())
        first = all(bool(one.all()) for one in self.kept_by(client).values())
        down = whole if first else self.part_cost(client).bytes + self.bit_bytes
        up = (self.costs[self.own[client - 1]].bytes if first else self.part_cost(client).bytes) + self.bit_bytes
        return WorkItem(client, KEY, objective, effort=self.part_effort(client), bytes=down, upload=up + gates)

    def weight(self, item: WorkItem) -> float:
        """Times the share of the parameters that the client keeps."""
        return super().weight(item) * self.part_cost(item.client).parameters / self.pool[KEY].cost.parameters

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """The mean where submodels overlap; then their structures."""
        super().aggregate(round, updates, means)
        if self.params.tuning == 0 or len(updates) < 2:
            return
        files, before = self.handed[OwnTensors.kind].files, [update.client for update in updates]
        owns = {client: self.newest(client) for client in before}
        lengths = [every.shape[1] for every in self.kept.values()]
        profiles = torch.stack([
            torch.cat([owns[client][f"{GATE}{group}"].abs().double() for group in self.kept]) for client in before
        ])  # fmt: skip
        moved = 0
        for client, importance in zip(before, tuned(profiles, self.params.tuning), strict=True):
            scores = dict(zip(self.kept, importance.split(lengths), strict=True))
            kept = channels.strongest(scores, self.target(client))
            moved += sum(int((one & ~self.kept[group][client - 1]).sum()) for group, one in kept.items())
            for group, one in kept.items():
                self.kept[group][client - 1] = one
            files.write(round, KEY, client, {**owns[client], **kept_bits(kept)})
        files.settle()
        self.record("channels_moved", moved)
