"""SPIDER (Mushtaq et al. 2021): each client searches a network of its own beside one that all train together.

Every client has two networks. The global one runs all operators of the supernet in equal shares and is averaged by
samples. The local one never leaves the client: it starts as the global one, learns the same batches with a pull to the
global one's weights as they were handed out, and from round ``proj_start`` on loses operators: every
``proj_recovery`` rounds, those of a layer drawn at random are left out one after another, and what the client's
validation samples say of the network without each decides. Clients are served their local networks.

Where it departs from the public code, or the paper leaves it open:

* The space is the configuration's supernet, so that SPIDER and FedorAS search the same one; the paper's is DARTS's
  cells, in which the code also chooses which edges of a node stay.
* A client shrinks in a round of ``proj_recovery`` only if it takes part in it; in the paper everybody does.
* Both networks start alike, and both step with the job's learning rate (the paper's: 0.01 with momentum 0.9).
* Momentum starts anew with each round.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedscale_ext.core.local_steps import HELD_OUT
from fedscale_ext.method import (
    ClientTensors,
    Count,
    EvaluationPlan,
    Excludes,
    Feature,
    NotNegative,
    OwnTensors,
    Population,
    State,
    Task,
    Update,
    Within,
    WorkItem,
    models,
    own_version,
)
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.search.mixtures import mixture_of
from fedscale_ext.methods.search.spider_client import ALIVE, SpiderExecutor
from fedscale_ext.models.memory import training_memory
from fedscale_ext.models.supernet.family import tables
from fedscale_ext.tasks.update_checks import Rejected
from fedscale_ext.transport.wire import Section
from fedscale_ext.util.ranges import check_ranges

KEY = "global"


@dataclass(frozen=True)
class SpiderParams:
    """``lambda_local`` pulls a client's local weights to the global ones: (lambda/2) |w_local - w_global|^2.

    ``proj_start``: first round in which local networks shrink, ``proj_recovery``: rounds from one such to the next.
    ``shrink``: a layer keeps the operator without which most accuracy is lost (layer; the public code), or loses the
    one without which least is (operator). ``val_ratio`` of its training samples is what a client validates with.
    """

    lambda_local: NotNegative = 0.01
    proj_start: Count = 60
    proj_recovery: Count = 30
    shrink: Literal["layer", "operator"] = "layer"
    val_ratio: Within = 0.2

    def __post_init__(self) -> None:
        check_ranges(self, "spider")


class LocalNetworks(OwnTensors):
    """The clients' local states and the operators that they keep, ``alive`` bool [clients, layers, operators]."""

    def __init__(self, folder: Path, template: State, held: np.ndarray, clients: int) -> None:
        super().__init__(folder, clients, {KEY: {**template, ALIVE: torch.from_numpy(held)}})
        self.alive = np.repeat(held[None], clients, axis=0)

    def checked(self, item: WorkItem, section: Section | None) -> State:
        """Rejected where a layer is left without operators, or one that was dropped is back."""
        found = super().checked(item, section)
        alive = found[ALIVE].numpy()
        if (alive & ~self.alive[item.client - 1]).any() or not alive.any(1).all():
            raise Rejected("its operators cannot be")
        return found

    def take(self, round: int, item: WorkItem, new: State) -> None:  # noqa: D102
        super().take(round, item, new)
        self.alive[item.client - 1] = new[ALIVE].numpy()

    def state(self) -> tuple[State, dict[str, Any]]:  # noqa: D102
        tensors, data = super().state()
        return {**tensors, ALIVE: torch.from_numpy(self.alive)}, data

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:  # noqa: D102
        super().load_state(tensors, data)
        self.alive = tensors[ALIVE].numpy().copy()


class SpiderAggregator(FedAvgAggregator):
    """Clients shrink supernets of their own beside one that is averaged (SPIDER)."""

    Params: ClassVar[type] = SpiderParams
    Executor: ClassVar[type] = SpiderExecutor
    chooses_paths: ClassVar[bool] = True
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.EARLY_STOP, "removes operators by rounds until one is left on each edge"),
        Excludes(Feature.ADAM, "pulls local weights to the global ones in steps of SGD"),
        Excludes(Feature.CHANGES, "trains a local network beside the global one"),
    )
    unprotected: ClassVar[str] = "the operators of clients' local networks"

    def init_state(self, population: Population, task: Task) -> None:
        """w_0 of the global network."""
        spec = mixture_of(self.initial_spec(), "equal", "spider", self.args.model)
        self.pool.add(KEY, spec, models.initial_state(spec, self.seed))
        self.tables = tables(spec)

    def client_tensors(self) -> list[ClientTensors]:
        """The local networks."""
        held = self.tables.held.copy()
        self.local = LocalNetworks(self.log_dir, self.pool[KEY].state, held, self.task.num_clients)
        return [*super().client_tensors(), self.local]

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Everybody trains both networks; in some rounds the local ones shrink before."""
        p = self.params
        shrinks = round >= p.proj_start and (round - p.proj_start) % p.proj_recovery == 0
        asked = {"lambda": p.lambda_local, "shrink": p.shrink if shrinks else None}
        whole = self.pool[KEY].cost.forward_macs
        return [
            WorkItem(client, KEY, {"spider": asked, HELD_OUT: p.val_ratio}, effort=1 + self.local_macs(client) / whole)
            for client in participants.tolist()
        ]

    def local_macs(self, client: int) -> float:
        """MACs per sample of a client's local network, as it was last handed in."""
        alive = self.local.alive[client - 1]
        return self.tables.fixed_macs + float(self.tables.macs[alive].sum())

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """The global network becomes the clients' mean by samples."""
        super().aggregate(round, updates, means)
        self.record("operators", {u.client: int(self.local.alive[u.client - 1].sum()) for u in updates})
        self.record("local_macs", {update.client: self.local_macs(update.client) for update in updates})

    def evaluation_plan(self) -> EvaluationPlan:
        """Every client is served its local network; the global one is tested beside."""
        return EvaluationPlan([own_version(KEY)] * self.task.num_clients, {"global": KEY})

    def results(self) -> dict[str, Any]:
        """Memory of a client's step before its local network shrinks: state and momentum are those of two networks."""
        moments = int(self.config.job.client_momentum > 0)
        one = training_memory(self.pool[KEY].spec, self.args.batch_size, moments=moments)
        both = one._replace(state=2 * one.state, optimizer=2 * one.optimizer)
        return {"memory": [{"network": "global and local", **both.megabytes()}]}
