"""FedSkel (Luo et al., CIKM 2021): clients update and exchange a skeleton of their network, its most active filters.

Every ``every`` rounds clients train the whole model and add up what each filter answers in magnitude (SetSkel); the
``share`` of each convolution's filters with the largest sums is the client's skeleton, as large as its type says. In
the other rounds (UpdateSkel) the forward pass is whole, gradients pass skeleton filters alone, and these alone are
exchanged: each filter becomes the mean over the participants whose skeletons hold it. All else stays the client's.

Public code (BUAA-CI-LAB) has the kernels of the pruned backward pass only. Decided here: SetSkel exchanges the whole
model, for the first models must come from somewhere; a client that has no skeleton yet sets one in whatever round it
first takes part. Answers are those of convolutions before BatchNorm, over the round's steps. A client is served its own
network with the server's newest skeleton filters. Moss's text (section 5) has devices train small models alone; here
types say how much is updated, as FedSkel's forward pass is whole by design.

Traffic counts the filters of the skeleton, in SetSkel rounds the whole model and on its way up a bit for each filter.
Of the MACs of a step the forward pass counts in full, the backward pass of convolutions by the skeleton's share. What
both sides really exchange here is dense. Each client's network is kept in the job's folder, as a device would.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from fedscale_ext.method import Count, Excludes, Feature, Population, State, Task, Update, UserError, WorkItem
from fedscale_ext.methods.pruning import masks
from fedscale_ext.methods.pruning.fedskel_client import (
    SKELETON,
    SkeletonExecutor,
    filters,
    rows,
    skeleton_of,
    skeleton_size,
)
from fedscale_ext.methods.pruning.pruned_types import KEY, PrunedTypesAggregator, PrunedTypesParams
from fedscale_ext.models.registry import skeleton


@dataclass(frozen=True)
class FedSkelParams(PrunedTypesParams):
    """``param_ratio`` or ``match_params``: the share of filters that the types' skeletons have, or the model of as many
    parameters from which it follows; ``groups`` or ``ranges`` who has which, as Moss's. ``every``: rounds from one
    SetSkel to the next. ``weighted`` weighs clients by samples.
    """

    every: Count = 5

    method: ClassVar[str] = "fedskel"


class FedSkelAggregator(PrunedTypesAggregator):
    """Clients find the filters that answer most, and train and exchange these (FedSkel)."""

    Params: ClassVar[type] = FedSkelParams
    Executor: ClassVar[type] = SkeletonExecutor
    excludes: ClassVar[tuple[Excludes, ...]] = (Excludes(Feature.CHANGES, "starts clients from networks of their own"),)
    measures_statistics: ClassVar[bool] = False  # networks stay whole, and each client keeps its own

    def init_state(self, population: Population, task: Task) -> None:
        """The model, whole; nobody has a skeleton."""
        super().init_state(population, task)
        model = self.pool[KEY]
        self._layers = filters(skeleton(model.spec))
        if not self._layers:
            raise UserError(
                f"fedskel chooses filters, and the model {self.args.model} has no convolution; take another"
            )
        self.shares = [cost.parameters / model.cost.parameters for cost in self.costs]
        self.has = torch.zeros(task.num_clients, dtype=torch.bool)  # a skeleton
        self._round = 0

    def template(self) -> State:
        """Its network, and which filters."""
        every = {name: torch.ones(layer.out_channels, dtype=torch.bool) for name, layer in self._layers.items()}
        bits = {f"{SKELETON}{name}": one for name, one in masks.pack(every).items()}
        return {**self.pool[KEY].state, **bits}

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """SetSkel or UpdateSkel."""
        self._round = round
        return super().assign(round, participants)

    def sets(self, client: int) -> bool:
        """Whether a client sets its skeleton in this round."""
        return (self._round - 1) % self.params.every == 0 or not self.has[client - 1]

    def item_of(self, client: int) -> WorkItem:
        """The whole model, or its skeleton."""
        cost, share, sets = self.pool[KEY].cost, self.shares[self.own[client - 1]], self.sets(client)
        objective = {"fedskel": {"set": sets, "share": share}}
        if sets:
            bits = sum(-(-layer.out_channels // 8) for layer in self._layers.values())
            return WorkItem(client, KEY, objective, bytes=cost.bytes, upload=cost.bytes + bits)
        forward, backward = cost.forward_macs, cost.training_macs - cost.forward_macs
        effort = (forward + share * backward) / cost.training_macs
        return WorkItem(client, KEY, objective, effort=effort, bytes=self._skeleton_bytes(share))

    def _skeleton_bytes(self, share: float) -> int:
        state = self.pool[KEY].state
        return sum(
            state[name].nbytes // len(state[name]) * skeleton_size(len(state[name]), share)
            for name in rows({name: torch.ones(layer.out_channels) for name, layer in self._layers.items()}, state)
        )

    def covered(self, client: int, own: State, state: State) -> Mapping[str, Any]:
        """Everything, or the filters of the skeleton that it was handed."""
        if self.sets(client):
            return dict.fromkeys(state)
        inside = rows(skeleton_of(own, self._layers, state), state)
        return {name: one.expand(state[name].shape) for name, one in inside.items()}

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Filter by filter, over those whose skeletons hold it."""
        super().aggregate(round, updates, means)
        for update in updates:
            self.has[update.client - 1] = True

    def state(self) -> tuple[State, dict[str, Any]]:
        """Who has a skeleton, and the round that was the last."""
        return {"has": self.has}, {"round": self._round}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.has, self._round = tensors["has"].bool(), int(data["round"])
