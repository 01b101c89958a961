"""The server of methods that distil on its own what clients hand in: FedDF and Fed-ET, whose clients train the model of
their type and know nothing of public data.

The server asks every model that it is handed for logits of its public samples. Executors do that for it, as they have
the models at hand: it counts neither as the devices' work nor as traffic.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.method import State, Update, WorkItem
from fedscale_ext.methods.distillation.public_models import PublicModelsAggregator


class EnsembleAggregator(PublicModelsAggregator):
    """Base of such methods. A type without participants keeps its model."""

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Everybody trains the model of its type."""
        self.ask(torch.arange(len(self.public.x)))
        return super().assign(round, participants)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Each type's mean, and what the server makes of it and of the ensemble."""
        for key, state in self.distilled(round, means, self.answers(updates), updates).items():
            self.pool.update(key, state)

    def distilled(
        self, round: int, means: Mapping[str, State], logits: Tensor, updates: Sequence[Update]
    ) -> dict[str, State]:
        """New states of the types, from the mean of each that took part and the logits of the public samples
        [updates, n, classes] that the participants' models gave."""
        raise NotImplementedError
