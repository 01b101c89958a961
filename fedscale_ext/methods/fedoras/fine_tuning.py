"""Stage 3 of FedorAS on the server: FedAvg of a tier's model by clients of that tier and above (section 3.3), and of
its twin, the same network from random weights (``end2end`` of the public code; Table 6).

A twin trains as the job's own keys say, from their first round; fine-tuning by hyperparameters of its own.
"""

from math import cos, pi
from typing import Any

import numpy as np

from fedscale_ext import models
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.stages import Stage
from fedscale_ext.runtime.pool import ModelPool
from fedscale_ext.runtime.steps import HELD_OUT, OWN_EPOCHS
from fedscale_ext.runtime.work import State, WorkItem
from fedscale_ext.streams import torch_stream
from fedscale_ext.submodels import CountMean


def tier_key(tier: int) -> str:
    """Key of a tier's model in the pool; ``tier`` from 0."""
    return f"tier{tier + 1}"


def twin_key(tier: int) -> str:
    """Key of its twin."""
    return f"{tier_key(tier)}_twin"


class FineTuning:
    """Rounds of stage 3 on the models of tiers."""

    def __init__(self, pool: ModelPool, params: FedorASParams, seed: int) -> None:
        self._pool, self._params, self._seed = pool, params, seed
        self._key = ""
        self._mean: CountMean | None = None

    def learning_rate(self, stage: Stage) -> float:
        """Of a round of fine-tuning: a cosine from ``finetune_lr`` to the share ``finetune_lr_end`` of it."""
        p = self._params
        done = (stage.step - 1) / max(1, stage.steps - 1)
        return p.finetune_lr * (p.finetune_lr_end + (1 - p.finetune_lr_end) * (1 + cos(pi * done)) / 2)

    def assign(self, stage: Stage, participants: np.ndarray) -> list[WorkItem]:
        """All participants train the tier's model, or its twin."""
        p = self._params
        objective: dict[str, Any] = {HELD_OUT: p.val_ratio}
        self._key = tier_key(stage.tier)
        if stage.name == "finetune":
            objective |= {OWN_EPOCHS: p.finetune_epochs, "batch_size": p.finetune_batch}
        else:
            spec, self._key = self._pool[self._key].spec, twin_key(stage.tier)
            if self._key not in self._pool:
                random = torch_stream(self._seed, "twin", stage.tier)
                self._pool.add(self._key, spec, models.initial_state(spec, random))
        self._mean = CountMean(self._pool[self._key].state)
        return [WorkItem(client, self._key, objective) for client in participants.tolist()]

    def collect(self, state: State, weight: float) -> None:
        """Add a client's state."""
        assert self._mean is not None
        self._mean.add(state, None, weight)

    def aggregate(self) -> None:
        """The model becomes the clients' mean."""
        assert self._mean is not None
        self._pool.update(self._key, self._mean.result())
