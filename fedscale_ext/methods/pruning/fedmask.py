"""FedMask (Li et al., SenSys 2021): weights stay as they were drawn; clients learn and exchange binary masks of them.

No public code is known: what is built follows the paper as specs of the baselines sum it up, and decides what that
leaves open.

* In its first round a client prunes channels once, to its type's number of each group: it keeps those whose weights
  matter most to the loss of its first batch, by |w dL/dw|. Masks are learnt within.
* A weight counts where sigma(s) > tau. A client's scores begin each round at logit(tau) + 1 or - 1, as the bits say
  that it is handed, and learn with a rate ``lr`` of their own by the straight-through gradient; devices keep no scores.
* The server takes the mean of each bit over the participants whose structures hold it, and hands out whether that is
  above tau. The model that a client is served is W with the mask that it learnt last, within its structure.
* Biases and what BatchNorm learns stay as drawn; its statistics are each client's own (the global model that is tested
  beside has their mean).

W follows from the seed and never travels. Traffic counts a bit for each weight of the structure, in both directions: of
all weights on the way down in a client's first round, and a bit for each channel on the way up. MACs are those of the
structure. What both sides really exchange here is dense.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch

from fedscale_ext.method import (
    Excludes,
    Feature,
    ModelSpec,
    Population,
    Positive,
    State,
    Task,
    Update,
    Within,
    WorkItem,
    models,
)
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.methods.pruning.fedmask_client import LR, THRESHOLD, MaskExecutor
from fedscale_ext.methods.pruning.pruned_types import KEY, PrunedTypesAggregator, PrunedTypesParams
from fedscale_ext.models.registry import skeleton


@dataclass(frozen=True)
class FedMaskParams(PrunedTypesParams):
    """``param_ratio`` or ``match_params``: how much of the model the types' structures hold; ``groups`` or ``ranges``
    who has which, as Moss's. ``threshold``: tau, of scores and of the mean of bits; ``lr``: learning rate of scores.
    ``weighted`` weighs clients by samples.
    """

    threshold: Within = THRESHOLD
    lr: Positive = LR

    method: ClassVar[str] = "fedmask"


@lru_cache(maxsize=1024)
def mask_bytes(spec: ModelSpec) -> int:
    """A bit for each weight that has one, tensor by tensor."""
    weights = masks.prunable(dict(skeleton(spec).named_parameters()))
    return sum(-(-weight.numel() // 8) for weight in weights.values())


class FedMaskAggregator(PrunedTypesAggregator):
    """Clients learn which of the model's random weights count, each within a structure of its own (FedMask)."""

    Params: ClassVar[type] = FedMaskParams
    Executor: ClassVar[type] = MaskExecutor
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.CHANGES, "exchanges masks of weights that never change"),
    )

    def init_state(self, population: Population, task: Task) -> None:
        """W, all of which counts."""
        super().init_state(population, task)
        state = self.pool[KEY].state
        self._drawn = masks.prunable({name: state[name] for name in models.parameter_names(self.pool[KEY].spec)})

    def template(self) -> State:
        """Which channels, which weights, and statistics."""
        ones = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in self._drawn.items()}
        parameters = models.parameter_names(self.pool[KEY].spec)
        statistics = {name: tensor for name, tensor in self.pool[KEY].state.items() if name not in parameters}
        return {**super().template(), **masks.pack(ones), **statistics}

    def item_of(self, client: int) -> WorkItem:
        """The mask of its structure."""
        spec = self.pool[KEY].spec
        kept = channels.widths(self.kept_by(client))
        down = up = mask_bytes(models.resized(spec, kept))
        if kept == channels.widths(channels.whole(spec)):
            up = mask_bytes(models.resized(spec, self.target(client))) + self.bit_bytes
        effort = self.part_effort(client)
        return WorkItem(client, KEY, {"fedmask": {"target": self.target(client)}}, effort=effort, bytes=down, upload=up)

    def covered(self, client: int, own: State, state: State) -> Mapping[str, Any]:
        """Masks where its structure is; statistics in full."""
        inside = channels.masks(self.layout, self.kept_by(client), {name: state[name] for name in self._drawn})
        return {**dict.fromkeys(state), **inside}

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Bits that more than tau of those have who may have them."""
        super().aggregate(round, updates, means)
        state = dict(self.pool[KEY].state)
        for name, drawn in self._drawn.items():
            counts = state[name].abs() > self.params.threshold * drawn.abs()
            state[name] = torch.where(counts, drawn, 0.0)
        self.pool.update(KEY, state)
