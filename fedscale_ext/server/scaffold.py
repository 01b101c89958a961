"""SCAFFOLD's control variates on the aggregator's side (Karimireddy et al., ICML 2020, Algorithm 1).

Each client has a variate for each whole model that it, or a part of it, has trained: a file in the job's folder, in
the model's shapes, NaN where the client has never held an entry. The server's is their weighted mean over all clients
(zero for those who have not trained yet), with the weights that the method's mean has: with equal ones the paper's
c <- c + |S| / N mean of (c_i+ - c_i). Where clients hold parts, an entry's mean is over those who can hold it: the
share of all weight that the clients seen so far tell.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.types import Model, State, WorkItem
from fedscale_ext.models import parameter_names
from fedscale_ext.submodels.extraction import grid
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks.client_tensors import CONTROL_VARIATES, StoredTensors

FOLDER = "variates"


class ModelVariates:
    """The variates of one whole model: ``total`` sum of weight times variate over clients, ``known`` the weight behind
    each entry, ``seen`` that of all clients that have one, ``total_weight`` that of all who may train.
    """

    def __init__(self, shapes: State, total_weight: float) -> None:
        self.total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in shapes.items()}
        self.known = {name: torch.zeros_like(tensor) for name, tensor in self.total.items()}
        self.seen, self.total_weight = 0.0, total_weight
        self.server: State = {}  # what all clients of a round receive

    def mean(self, shapes: State) -> State:
        """c: the mean over the clients who can hold an entry."""
        mean = {}
        for name, total in self.total.items():
            weight = self.known[name] * (self.total_weight / self.seen) if self.seen else self.known[name]
            mean[name] = torch.where(weight > 0, total / weight, 0.0).to(shapes[name].dtype)
        return mean


class ControlVariates(StoredTensors):
    """All variates of a job; ``weight`` of a client's state in the mean of a model, ``eligible`` bool [clients].

    Clients are handed the offsets c - c_i, on the tensors that each trains, and hand back their new variates.
    """

    kind: ClassVar[str] = CONTROL_VARIATES

    def __init__(
        self, folder: Path, pool: ModelPool, weight: Callable[[WorkItem], float], eligible: np.ndarray
    ) -> None:
        super().__init__(folder / FOLDER, len(eligible))
        self._pool, self._weight, self._eligible = pool, weight, eligible
        self._variates: dict[str, ModelVariates] = {}

    # ---- a round ----

    def begin(self, items: Sequence[WorkItem]) -> None:
        """Settle what all clients of a round share, from what was handed in before it."""
        for key in sorted({self._pool[item.model].whole for item in items}):
            shapes = self._shapes(self._pool[key])
            if key not in self._variates:
                clients = (np.flatnonzero(self._eligible) + 1).tolist()
                total_weight = sum(self._weight(WorkItem(client, key)) for client in clients)
                self._variates[key] = ModelVariates(shapes, total_weight)
            self._variates[key].server = self.shared(self._variates[key], shapes)

    def shared(self, whole: ModelVariates, shapes: State) -> State:
        """What all clients of a round correct their own variates by: c."""
        return whole.mean(shapes)

    def traffic_bytes(self, item: WorkItem) -> int:
        """A variate is as large as the model's parameters."""
        return self.most(item.model)

    def template(self, key: str) -> State:
        """The parameters of a model."""
        return self._shapes(self._pool[key])

    def outgoing(self, item: WorkItem) -> State:
        """The offset c - c_i of a client, on the tensors that it trains."""
        model = self._pool[item.model]
        server, variate = self._variates[model.whole].server, self.files.read(model.whole, item.client)
        offset = {}
        for name, entries in self._covered(model).items():
            here = (
                server[name]
                if variate is None or name not in variate
                else server[name] - torch.nan_to_num(variate[name])
            )
            offset[name] = here if entries is None else here[entries]
        return offset

    def take(self, round: int, item: WorkItem, new: State) -> None:
        """Keep a client's new variate; the server's follows when the next round begins."""
        model, weight = self._pool[item.model], self._weight(item)
        whole, shapes = self._variates[model.whole], self._shapes(self._pool[model.whole])
        before = self.files.newest(model.whole, item.client)
        variate = before or {}
        whole.seen += weight if before is None else 0.0
        for name, entries in self._covered(model).items():
            if name not in variate:
                variate[name] = torch.full_like(shapes[name], float("nan"))
            here = ... if entries is None else entries
            old = variate[name][here]
            whole.total[name][here] += weight * (new[name].double() - torch.nan_to_num(old.double()))
            whole.known[name][here] += weight * old.isnan()
            variate[name][here] = new[name]
        self.files.write(round, model.whole, item.client, variate)

    # ---- models ----

    def _shapes(self, model: Model) -> State:
        return {name: model.state[name] for name in parameter_names(model.spec) if name in model.state}

    def _covered(self, model: Model) -> dict[str, tuple[Tensor, ...] | None]:
        """Where the entries of each of a model's parameters lie in its whole: None for all of a tensor."""
        shapes = self._shapes(self._pool[model.whole])
        indices: dict[str, tuple[Tensor, ...] | None] = {}
        for name in self._shapes(model):
            entries = None if model.part is None else model.part.covered[name]
            assert not isinstance(entries, Tensor)  # parts have no masks
            indices[name] = None if entries is None else grid(entries, shapes[name].shape)
        return indices

    # ---- checkpoints ----

    def state(self) -> tuple[State, dict[str, Any]]:
        """What a checkpoint holds: tensors and JSON."""
        tensors, _ = super().state()
        for index, whole in enumerate(self._variates.values()):
            tensors |= {f"{index}/total/{name}": tensor for name, tensor in whole.total.items()}
            tensors |= {f"{index}/known/{name}": tensor for name, tensor in whole.known.items()}
        return tensors, {key: [whole.seen, whole.total_weight] for key, whole in self._variates.items()}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave; UserError where a client's file is missing."""
        super().load_state(tensors, data)
        for index, (key, (seen, total_weight)) in enumerate(data.items()):
            whole = self._variates[key] = ModelVariates(self._shapes(self._pool[key]), total_weight)
            whole.seen = seen
            for kind, tensors_of_kind in (("total", whole.total), ("known", whole.known)):
                tensors_of_kind.update({name: tensors[f"{index}/{kind}/{name}"] for name in tensors_of_kind})
