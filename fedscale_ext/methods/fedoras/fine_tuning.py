"""Stage 3 of FedorAS on the server: FedAvg of a tier's model by clients of that tier and above (section 3.3), and of
its twin, the same network from random weights (``end2end`` of the public code; Table 6).

The public code trains both with one client (its batch, epochs and augmentation are not those of supernet training) and
one schedule; a twin starts from supernet training's learning rate.
"""

from dataclasses import dataclass
from math import cos, pi
from typing import Any

import numpy as np

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import torch_stream
from fedscale_ext.core.types import State, WorkItem
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.stages import Stage
from fedscale_ext.submodels import CountMean
from fedscale_ext.submodels.model_pool import ModelPool


def tier_key(tier: int) -> str:
    """Key of a tier's model in the pool; ``tier`` counts from 0."""
    return f"tier{tier + 1}"


def twin_key(tier: int) -> str:
    """Key of a tier's twin in the pool."""
    return f"{tier_key(tier)}_twin"


@dataclass(frozen=True)
class JobKeys:
    """Keys of the job that stage 3 needs: ``learning_rate``, ``augment``, and whether its data are ``text``."""

    learning_rate: float
    augment: str
    text: bool


class FineTuning:
    """Rounds of stage 3 on the models of tiers. UserError for a ``finetune_augment`` of data that are no pictures."""

    def __init__(self, pool: ModelPool, params: FedorASParams, seed: int, job: JobKeys) -> None:
        self._pool, self._params, self._seed, self._job = pool, params, seed, job
        augment = params.finetune_augment
        tunes = params.finetune_rounds or params.twin_rounds
        if tunes and augment not in (None, "none") and job.augment in ("none", "speech"):
            raise UserError(
                f"fedoras.finetune_augment is {augment} and augment is {job.augment}: set augment to one for pictures, "
                "or leave fedoras.finetune_augment out"
            )
        self._augment = augment or ("flip_crop" if job.augment == "rand_flip_crop" else job.augment)
        self._key = ""
        self._mean: CountMean | None = None

    def learning_rate(self, stage: Stage) -> float:
        """Learning rate of a round of fine-tuning or of a twin: a cosine down to a share of the first one, or steps."""
        p = self._params
        first, end = p.finetune_lr, p.finetune_lr_end
        if stage.name == "twin":
            first, end = p.twin_lr or self._job.learning_rate, p.twin_lr_end
        if (p.finetune_schedule or ("steps" if self._job.text else "cosine")) == "steps":
            falls = sum(stage.step >= max(2, quarters * stage.steps // 4) for quarters in (2, 3))
            return first * end**falls
        done = (stage.step - 1) / max(1, stage.steps - 1)
        return first * (end + (1 - end) * (1 + cos(pi * done)) / 2)

    def assign(self, stage: Stage, participants: np.ndarray) -> list[WorkItem]:
        """Let all participants train the tier's model, or its twin."""
        p = self._params
        overrides: dict[str, Any] = {"held_out": p.val_ratio, "augment": self._augment}
        self._key = tier_key(stage.tier)
        if stage.name == "finetune":
            overrides |= {"local_epochs": p.finetune_epochs, "batch_size": p.finetune_batch}
        else:
            overrides |= {
                "local_epochs": p.twin_epochs or p.finetune_epochs,
                "batch_size": p.twin_batch or p.finetune_batch,
            }
            spec, self._key = self._pool[self._key].spec, twin_key(stage.tier)
            if self._key not in self._pool:
                random = torch_stream(self._seed, "twin", stage.tier)
                self._pool.add(self._key, spec, models.initial_state(spec, random))
        self._mean = CountMean(self._pool[self._key].state)
        return [WorkItem(client, self._key, overrides=overrides) for client in participants.tolist()]

    def collect(self, state: State, weight: float) -> None:
        """Add a client's state to the mean."""
        assert self._mean is not None
        self._mean.add(state, None, weight)

    def aggregate(self) -> None:
        """Take the clients' mean as the model."""
        assert self._mean is not None
        self._pool.update(self._key, self._mean.result())
