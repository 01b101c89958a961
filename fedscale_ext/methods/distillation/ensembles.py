"""The server of methods that distil what clients hand in on its own: FedDF and Fed-ET, whose clients train the model of
their type and know nothing of public data."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.methods.device_types import DeviceTypesAggregator
from fedscale_ext.methods.distillation.exchange import public_of
from fedscale_ext.methods.distillation.fitting import logits_of
from fedscale_ext.population.population import Population
from fedscale_ext.runtime.work import State, Task, Update, WorkItem
from fedscale_ext.submodels import CountMean


class EnsembleAggregator(DeviceTypesAggregator):
    """Base of such methods: takes each client's model as it is, adds it to its type's mean, and keeps what it makes of
    the public samples. A type without participants keeps its model."""

    reduces: ClassVar[bool] = False

    def init_state(self, population: Population, task: Task) -> None:
        """A model for each type; the public data."""
        super().init_state(population, task)
        self.public = public_of(self, needs_labels=False)

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Everybody trains the model of its type."""
        self._means: dict[str, CountMean] = {}
        self._logits: dict[int, Tensor] = {}
        return super().assign(round, participants)

    def collect(self, round: int, update: Update, state: State) -> None:
        """A client's model, and its logits."""
        key = update.item.model
        if key not in self._means:
            self._means[key] = CountMean(self.pool[key].state)
        self._means[key].add(state, None, self.weight(update.item))
        self._logits[update.client] = logits_of(self.pool[key].spec, state, self.public.x)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Each type's mean, and what the server makes of it and of the ensemble."""
        logits = torch.stack([self._logits[update.client] for update in updates])
        found = {key: self._means[key].result() for key in self.keys if key in self._means}
        for key, state in self.distilled(round, found, logits, updates).items():
            self.pool.update(key, state)
        self._means, self._logits = {}, {}

    def distilled(self, round: int, means: dict[str, State], logits: Tensor, updates: list[Update]) -> dict[str, State]:
        """New states of the pool's models, from the mean of each type that took part and the participants' logits
        [updates, n, classes] of the public samples."""
        raise NotImplementedError
