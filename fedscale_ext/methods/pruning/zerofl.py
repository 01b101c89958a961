"""ZeroFL (Qiu et al., ICLR 2022): clients train with sparse weights and activations and hand in a sparse model.

Training is SWAT's (Raihan and Aamodt, NeurIPS 2020; ``zerofl_client.py``). What a client hands in (section 4.2), of
each layer's weights a share of 1 - sparsity + mask_ratio:

* ``top_k_weights``: its largest weights, others count as zero in the server's mean;
* ``diff_on_top_k``: the changes of its largest weights, others count as unchanged;
* ``top_k_diff``: its largest changes.

No public code could be read: what the paper leaves open is decided here. Largest is in magnitude, in each layer by
itself, in all convolutions and linear layers; biases and normalisation are dense. On the virtual clock and in the cost
of a round, devices skip zeros (``skips_zeros``): all three products of a step have one sparse factor, so a step takes
1 - sparsity of the MACs. What is handed in counts its values and a bit for each weight; what is handed out is
dense. What both sides really compute and exchange here is dense. What is tested, served and written at the end is the
network of SWAT's forward pass: each layer's largest 1 - sparsity of the weights, the others zero.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedscale_ext.method import Decay, EvaluationPlan, Excludes, Feature, Population, Share, State, Task, WorkItem
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.pruning.zerofl_client import ZeroFLExecutor, kept, largest, sparse_weights
from fedscale_ext.models.registry import skeleton
from fedscale_ext.util.ranges import check_ranges

KEY = "global"


@dataclass(frozen=True)
class ZeroFLParams:
    """``sparsity``: share of each layer's weights and activations that a step leaves out (the paper: 0.9, 0.95).
    ``upload``: which weights are handed in; ``mask_ratio``: share of them beyond 1 - sparsity (the paper: 0, 0.1,
    0.2). ``skips_zeros``: whether devices compute faster for it.
    """

    sparsity: Decay = 0.9
    upload: Literal["top_k_weights", "diff_on_top_k", "top_k_diff"] = "top_k_weights"
    mask_ratio: Share = 0.1
    skips_zeros: bool = True

    def __post_init__(self) -> None:
        check_ranges(self, "zerofl")

    @property
    def share(self) -> float:
        """Of a layer's weights that are handed in."""
        return min(1.0, 1 - self.sparsity + self.mask_ratio)


class ZeroFLAggregator(FedAvgAggregator):
    """FedAvg of sparse training and sparse uploads (ZeroFL)."""

    Params: ClassVar[type] = ZeroFLParams
    Executor: ClassVar[type] = ZeroFLExecutor
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.CHANGES, "hands in a part of what its clients learned"),
    )

    def init_state(self, population: Population, task: Task) -> None:
        """w_0, and how large a sparse one is."""
        super().init_state(population, task)
        cost = self.pool[KEY].cost
        sizes = [weight.numel() for weight in sparse_weights(skeleton(self.pool[KEY].spec)).values()]
        values = sum(kept(size, self.params.share) for size in sizes)
        dense = next(iter(self.pool[KEY].state.values())).itemsize
        self._dense: State = {}  # what trains on, while the pool has the network that is tested
        self._upload = cost.bytes - (sum(sizes) - values) * dense + sum(-(-size // 8) for size in sizes)

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """S_t trains sparsely."""
        p = self.params
        if self._dense:
            self.pool.update(KEY, self._dense)
            self._dense = {}
        objective = {"zerofl": {"sparsity": p.sparsity, "upload": p.upload, "share": p.share}}
        effort = 1 - p.sparsity if p.skips_zeros else 1.0
        upload = min(self._upload, self.pool[KEY].cost.bytes)
        return [WorkItem(client, KEY, objective, effort=effort, upload=upload) for client in participants.tolist()]

    def evaluation_plan(self) -> EvaluationPlan:
        """The weights that a forward pass takes, for everybody."""
        if not self._dense:
            model = self.pool[KEY]
            self._dense, share = model.state, 1 - self.params.sparsity
            names = sparse_weights(skeleton(model.spec))
            sparse = {name: torch.where(largest(self._dense[name], share), self._dense[name], 0.0) for name in names}
            self.pool.update(KEY, {**self._dense, **sparse})
        return super().evaluation_plan()

    def state(self) -> tuple[State, dict[str, Any]]:
        """The dense weights after a test."""
        return self._dense, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self._dense = tensors
