"""LotteryFL (Li et al. 2020, Algorithm 1): each client finds its own subnetwork, a lottery ticket, and trains that.

Where it departs from the public code, or the paper leaves it open:

* Clients judge the masked global model on a validation part of their own training samples, on which they do not train.
  The public code makes such a part, a tenth, but looks at test samples instead.
* Weights of convolutions and linear layers are pruned, a whole number of each layer's survivors; the public code
  compares with a percentile, and prunes what has "weight" in its name (BatchNorm's too). All parameters rewind.
* What is pruned is told by the mask; the public code also freezes weights that are nearly zero.
* The public code adds up the clients' masks in the memory of the first one.

Unstructured masks save bytes, not MACs: dense kernels compute zeros too. A client's traffic counts its surviving
weights, what is never pruned, and its mask in bits, in both directions as of the mask that it was handed. What both
sides really exchange here is dense. BatchNorm's statistics, also when measured anew, are the global model's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from fedscale_ext.methods import masks
from fedscale_ext.methods.by_type import ByTypeAggregator
from fedscale_ext.methods.fedavg import FedAvgAggregator
from fedscale_ext.methods.lotteryfl_client import LotteryExecutor
from fedscale_ext.models import parameter_names
from fedscale_ext.population.population import Population
from fedscale_ext.ranges import Decay, Within, check_ranges
from fedscale_ext.runtime.client_tensors import ClientTensors, OwnTensors
from fedscale_ext.runtime.steps import HELD_OUT
from fedscale_ext.runtime.work import EvaluationPlan, State, Task, Update, WorkItem, own_version
from fedscale_ext.submodels import CountMean
from fedscale_ext.submodels.coverage import Entries

KEY = "global"


@dataclass(frozen=True)
class LotteryFLParams:
    """A client whose masked global model is right on more than ``threshold`` (the paper's 0.5; the public code's
    examples take 0.2) of its validation part and that keeps more than ``target`` of its weights prunes ``step`` of
    each layer's survivors, the smallest in magnitude, and rewinds the rest to the initial values. ``validation``: share
    of its training samples that a client holds out for this. ``weighted`` weighs clients by their samples (the public
    code does not).
    """

    threshold: Decay = 0.5
    target: Decay = 0.5
    step: Within = 0.1
    validation: Within = 0.1
    weighted: bool = False

    def __post_init__(self) -> None:
        check_ranges(self, "lotteryfl")


class LotteryFLAggregator(ByTypeAggregator, FedAvgAggregator):
    """Clients prune one model to subnetworks of their own, which overlap in the server's mean (LotteryFL)."""

    Params: ClassVar[type] = LotteryFLParams
    Executor: ClassVar[type] = LotteryExecutor
    reduces: ClassVar[bool] = False
    own_start: ClassVar[str] = "starts clients from masked or initial weights"
    measures_statistics: ClassVar[bool] = True  # means of those of differently pruned networks fit none of them

    _mean: CountMean | None = None  # of this round's clients

    def init_state(self, population: Population, task: Task) -> None:
        """theta_0; every mask is all ones."""
        super().init_state(population, task)
        self._all = sum(weight.numel() for weight in self._weights().values())
        self.left = torch.full((task.num_clients,), self._all)  # surviving weights of each client
        self.own = np.zeros(task.num_clients, dtype=np.int64)

    def type_names(self) -> Sequence[str]:
        """All clients prune the one model."""
        return [KEY]

    def one_way(self, up: np.ndarray) -> np.ndarray:
        """The whole model, as of other systems that prune."""
        return np.full(len(up), self.pool[KEY].cost.bytes, dtype=np.float64)

    def kept_share(self) -> np.ndarray:
        """Surviving weights, and what is never pruned."""
        every = self.pool[KEY].cost.parameters
        kept: np.ndarray = 1 - (self._all - self.left.numpy()) / every
        return kept

    def client_tensors(self) -> list[ClientTensors]:
        """The mask m_c, in bits."""
        ones = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in self._weights().items()}
        own = OwnTensors(self.log_dir, self.task.num_clients, {KEY: masks.pack(ones)})
        return [*super().client_tensors(), own]

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Everybody trains its part of the global model."""
        return [self.item_of(client) for client in participants.tolist()]

    def item_of(self, client: int) -> WorkItem:
        """Its part of the model, as it is now."""
        ticket = {name: getattr(self.params, name) for name in ("threshold", "target", "step")}
        objective = {"ticket": ticket, HELD_OUT: self.params.validation}
        return WorkItem(client, KEY, objective, bytes=self._bytes(client))

    def _bytes(self, client: int) -> int:
        """Surviving values, what is never pruned, and the mask."""
        gone, bits = self._all - int(self.left[client - 1]), -(-self._all // 8)
        itemsize = next(iter(self._weights().values())).itemsize
        return self.pool[KEY].cost.bytes - gone * itemsize + bits

    def weight(self, item: WorkItem) -> float:
        """All clients alike, or by their samples."""
        return super().weight(item) if self.params.weighted else 1.0

    def collect(self, round: int, update: Update, state: State) -> None:
        """Add w_c * m_c where m_c covers."""
        if self._mean is None:
            self._mean = CountMean(self.pool[KEY].state)
        packed = self.handed[OwnTensors.kind].files.newest(KEY, update.client)
        assert packed is not None  # it came with the state
        mask = masks.unpack(packed, self._weights())
        covered: dict[str, Entries] = {**dict.fromkeys(state), **mask}
        self._mean.add(state, covered, self.weight(update.item))
        self.left[update.client - 1] = masks.survivors(mask)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Each entry's mean over the masks that cover it; what no mask covers stays as it is."""
        assert self._mean is not None  # somebody was collected
        self.pool.update(KEY, self._mean.result())
        self._mean = None
        self.record("left", {update.client: int(self.left[update.client - 1]) / self._all for update in updates})

    def evaluation_plan(self) -> EvaluationPlan:
        """Every client is served its own part of the global model, which is tested beside."""
        return EvaluationPlan([own_version(KEY)] * self.task.num_clients, {KEY: KEY})

    def state(self) -> tuple[State, dict[str, Any]]:
        """How much each client has left; the masks have files of their own."""
        return {"left": self.left}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.left = tensors["left"]

    def _weights(self) -> State:
        model = self.pool[KEY]
        return masks.prunable({name: model.state[name] for name in parameter_names(model.spec)})


if __name__ == "__main__":
    from fedscale_ext.runtime.launch import run_rank

    run_rank()
