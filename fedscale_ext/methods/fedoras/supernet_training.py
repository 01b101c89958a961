"""Stage 1 of FedorAS on the server: who is sent which subspace, and what becomes of what comes back (section 3.1).

On the virtual clock, and in what a round cost, a client counts for the MACs of the very paths that it draws, by
``models.cost``; its traffic is its subspace, both ways.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.parts import part_of
from fedscale_ext.core.streams import stream
from fedscale_ext.core.types import State, Task, Update, WorkItem
from fedscale_ext.methods.fedoras.brackets import budget_tables
from fedscale_ext.methods.fedoras.client import EXAMPLES
from fedscale_ext.methods.fedoras.operator_aggregation import OperatorMeans
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.path_sampling import cheapest, drawn_paths, path_macs, path_training_macs
from fedscale_ext.methods.fedoras.subspace_sampling import (
    held_by,
    least_bytes,
    operators,
    sample_subspace,
    total_bytes,
)
from fedscale_ext.models.supernet.family import Tables, restricted, tables
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks.answers.update_checks import Rejected
from fedscale_ext.tasks.client_tensors import ReturnedTensors
from fedscale_ext.transport.wire import Section

SUPERNET = "supernet"  # key of the whole in the pool
_SHARED = "subspace"  # of a round's only subspace


@dataclass(frozen=True)
class Tier:
    """A tier: ``budget``, the MACs per sample of its dearest path by the paper's count, and ``unsupported``
    operators."""

    budget: float
    unsupported: tuple[str, ...] = ()


class OperatorExamples(ReturnedTensors):
    """Number of examples that went through each operator at each client (Equation 5's |D_i,o|), as clients report."""

    def __init__(self, pool: ModelPool, costs: Tables, task: Task) -> None:
        super().__init__()
        self._pool, self._costs, self._task = pool, costs, task

    def template(self, key: str) -> State:  # noqa: D102
        return {EXAMPLES: torch.zeros(self._costs.held.shape, dtype=torch.int64)}

    def concerns(self, items: Sequence[WorkItem]) -> bool:  # noqa: D102
        return any("paths" in item.objective for item in items)

    def checked(self, item: WorkItem, section: Section | None) -> State:
        """Check the counts: rejected unless every example went through one held operator of each layer."""
        tensors = super().checked(item, section)
        counts = tensors[EXAMPLES].numpy()
        held = held_by(self._costs, self._pool[item.model].spec)
        seen = int(self._task.step_sizes(item.client, item.overrides).sum())
        # each below what was planned before they are added up: sums of large numbers would wrap
        if (counts < 0).any() or (counts > seen).any() or counts[~held].any() or (counts.sum(1) != seen).any():
            raise Rejected("its counts of examples per operator cannot be")
        return tensors

    def counts(self, client: int) -> np.ndarray:
        """Return a client's numbers of examples in this round, int64 [layers, operators]."""
        counts: np.ndarray = self.of[client][EXAMPLES].numpy()
        return counts


class SupernetTraining:
    """Rounds of stage 1 on ``pool[SUPERNET]``.

    ``tier_of`` int64 [clients] is the index of each client's tier; ``bytes``: the largest size of a subspace. UserError
    for a budget below the cheapest path, and for a subspace that cannot hold an operator of each layer.
    """

    def __init__(
        self, pool: ModelPool, task: Task, params: FedorASParams, seed: int, tiers: Sequence[Tier], tier_of: np.ndarray
    ) -> None:
        self._pool, self._task, self._params, self._seed = pool, task, params, seed
        self.tiers, self.tier_of = tiers, tier_of
        self.spec = pool[SUPERNET].spec
        self.macs = tables(self.spec)
        self.costs = [budget_tables(self.spec, tier.unsupported) for tier in tiers]
        for number, (tier, costs) in enumerate(zip(tiers, self.costs, strict=True), start=1):
            if tier.budget < (least := cheapest(costs, costs.held)):
                raise UserError(
                    f"the budget of tier {number} is {tier.budget / 1e6:g} MMACs and its cheapest path takes "
                    f"{least / 1e6:.4g}; raise fedoras.brackets"
                )
        # all bytes of what some tier can run
        self._all = tables(self.spec, unsupported=set.intersection(*(set(tier.unsupported) for tier in tiers)))
        self.bytes = int(part_of(params.subspace, total_bytes(self._all)))
        needed = max(map(least_bytes, self.costs))
        if params.subspace_per == "round":
            needed = max(needed, self._check_shared())
        if self.bytes < needed:
            raise UserError(
                f"fedoras.subspace {params.subspace:g} of this supernet is {self.bytes:,} bytes, and one operator for "
                f"each layer may take {needed:,}; it must be at least {needed / total_bytes(self._all):.4g}"
            )
        self._parameters = models.parameter_names(self.spec) if params.opa_scope == "buffers_only" else None

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Give each participant its subspace (Eq. 1) and the budget of its paths (Eq. 3).

        Its MACs are those of the paths that it will draw.
        """
        self._pool.drop_transient()  # of a round that came to nothing
        p, clients = self._params, participants.tolist()
        state = self._pool[SUPERNET].state
        self._means = OperatorMeans(state, p.aggregation, p.opa_min_clients, self._parameters, p.mean_over)
        if p.subspace_per == "client":
            return [self._item(round, c, self._subspace(f"client{c}", self._tier(c), round, c)) for c in clients]
        shared = self._shared(round, {self._tier(client) for client in clients})
        return [self._item(round, client, shared) for client in clients]

    def _check_shared(self) -> int:
        """Bytes of the smallest budget of a subspace that all tiers can train. UserError where they have no path."""
        lowest, common, _ = self._in_common(range(len(self.tiers)))
        if lowest < (least := cheapest(common, common.held)):
            raise UserError(
                f"fedoras.subspace_per is round, and the cheapest path of operators that all tiers support takes "
                f"{least / 1e6:.4g} MMACs, above the lowest budget, {lowest / 1e6:g}; set fedoras.subspace_per: "
                "client, or shorten fedoras.unsupported"
            )
        return least_bytes(common)

    def _in_common(self, numbers: Iterable[int]) -> tuple[float, Tables, Tables]:
        """Budget and costs that some tiers have in common.

        Args:
            numbers: Indices of the tiers.

        Returns:
            The lowest budget, the costs of operators that all of them support, and those that any supports.

        """
        tiers = [self.tiers[number] for number in numbers]
        each = [set(tier.unsupported) for tier in tiers]
        try:
            common = budget_tables(self.spec, tuple(sorted(set.union(*each))))
        except UserError as error:
            raise UserError(f"fedoras.subspace_per is round, so that tiers must share a path: {error}") from None
        some = budget_tables(self.spec, tuple(sorted(set.intersection(*each))))
        return min(tier.budget for tier in tiers), common, some

    def _tier(self, client: int) -> int:
        return int(self.tier_of[client - 1])

    def _subspace(self, key: str, tier: int, *when: int) -> str:
        rng = stream(self._seed, *when, "subspace")
        return self._sent(key, sample_subspace(self.costs[tier], self.bytes, rng, self.tiers[tier].budget))

    def _shared(self, round: int, numbers: Collection[int]) -> str:
        """Draw one subspace for clients of some tiers, with a path that all of them can train."""
        budget, common, some = self._in_common(numbers)
        rng = stream(self._seed, round, "subspace")
        return self._sent(_SHARED, sample_subspace(common, self.bytes, rng, budget, some))

    def _sent(self, key: str, held: np.ndarray) -> str:
        spec = restricted(self.spec, operators(self.macs, held))
        self._pool.add_part(key, SUPERNET, spec, {}, transient=True)
        return key

    def _item(self, round: int, client: int, key: str) -> WorkItem:
        number = self._tier(client)
        tier, model = self.tiers[number], self._pool[key]
        p = self._params
        settings = {
            "budget": tier.budget,
            "unsupported": list(tier.unsupported),
            "load": p.dynamic_budget,
            "idle_gradient": p.idle_gradient,
        }
        objective, overrides = {"paths": settings}, {"held_out": p.val_ratio}
        sizes = self._task.step_sizes(client, overrides)
        held = held_by(self.macs, model.spec)
        key_of_draw = (self._seed, round, client)
        paths = drawn_paths(self.costs[number], held, tier.budget, p.dynamic_budget, len(sizes), *key_of_draw)
        forward, training = (
            float(np.average(macs(self.macs, paths), weights=sizes)) for macs in (path_macs, path_training_macs)
        )
        return WorkItem(
            client, key, objective, overrides, compute_fraction=forward / model.cost.forward_macs,
            training_fraction=training / model.cost.training_macs,
        )  # fmt: skip

    def collect(self, update: Update, state: State, examples: np.ndarray) -> None:
        """Add a client's state to the means of the operators that it trained."""
        seen = {
            (layer, self.macs.ops[layer][column]): int(examples[layer, column])
            for layer, column in np.argwhere(examples).tolist()
        }
        self._means.add(state, seen, update.trained)

    def aggregate(self) -> int:
        """Average by operators (OPA, Eq. 5); return how many operators were trained by enough clients."""
        enough = sum(clients >= self._params.opa_min_clients for clients in self._means.clients.values())
        self._pool.update(SUPERNET, self._means.result())
        return enough
