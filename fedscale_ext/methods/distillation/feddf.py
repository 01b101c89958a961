"""FedDF (Lin et al., NeurIPS 2020, Algorithm 3): each type's mean learns on the server from the ensemble of clients.

A round: clients train the model of their type; the server averages each type's by samples; each mean is a student whose
teacher is the mean of the logits of all participants, of any type, on public samples, which need no labels and may be
of another task: KL at temperature 1, Adam with a cosine schedule.

Departures from the paper and the public code:

* A student is judged on public samples that it does not learn from, by the same loss. In the public code, it is judged
  by accuracy on a labelled validation set.
* It ends when that loss has not fallen for ``patience`` steps. It is judged about ten times in so many steps, and after
  the last.
* The teacher answers without augmentation, once for all steps.

Paper to code, section by section: docs/methods/distillation.md.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedscale_ext.core.streams import torch_stream
from fedscale_ext.method import (
    About,
    Count,
    CountOrZero,
    OpenFraction,
    Population,
    Positive,
    State,
    Task,
    Update,
    UserError,
)
from fedscale_ext.methods.device_types import DeviceTypesParams
from fedscale_ext.methods.distillation.consensus import mean_logits
from fedscale_ext.methods.distillation.fitting import Fit, Fitted, fit
from fedscale_ext.methods.distillation.losses import divergence
from fedscale_ext.methods.distillation.public_models import EnsembleAggregator


@dataclass(frozen=True)
class FedDFParams(DeviceTypesParams):
    """Hyperparameters of FedDF.

    Each type's model learns by Adam from the ensemble.

    Attributes:
        steps: Most batches that each type's model learns in a round. With 0 it learns nothing: FedAvg by type, to
            compare with.
        patience: Steps without a lower loss on the validation samples after which a model stops early.
        batch_size: Public samples of a batch.
        lr: Learning rate of Adam.
        validation: Share of the public samples that decides when a model stops.

    """

    steps: CountOrZero = 10_000
    patience: Count = 1_000
    batch_size: Count = 128
    lr: Positive = 1e-3
    validation: OpenFraction = 0.2

    method: ClassVar[str] = "feddf"


class FedDFAggregator(EnsembleAggregator):
    """Each type's averaged model learns from the ensemble of all participants on public data (FedDF)."""

    about: ClassVar[About] = About("distillation", 2020, "public samples")
    Params: ClassVar[type] = FedDFParams

    def init_state(self, population: Population, task: Task) -> None:
        """Create models, load public data, and hold out a part of it to judge students."""
        super().init_state(population, task)
        count = len(self.public.x)
        held = max(1, round(self.params.validation * count))
        if self.params.steps and count - held < 2:
            raise UserError(
                f"feddf.validation {self.params.validation:g} of {count} public samples leaves fewer than two to learn "
                "from; give more public_samples"
            )
        self.held_out = torch.randperm(count, generator=torch_stream(self.seed, "feddf", "held out"))[:held]

    def distilled(
        self, round: int, means: Mapping[str, State], logits: Tensor, updates: Sequence[Update]
    ) -> dict[str, State]:
        """Distil the ensemble into each type's mean (Algorithm 3, lines 9-13)."""
        p, teacher = self.params, mean_logits(logits)
        if not p.steps:  # not even judged: that would cost the server something, and held-out samples would matter
            self.record("distillation", {key: {"steps": 0, "loss": 0.0} for key in means})
            self.report_diverged(round, [])
            return dict(means)
        how = Fit(lr=p.lr, batch_size=p.batch_size, steps=p.steps, optimizer="adam", cosine=True, patience=p.patience)

        def loss(output: Tensor, at: Tensor) -> Tensor:
            return divergence(output, teacher[at])

        students: dict[str, Fitted] = {}
        for key, state in means.items():
            generator = torch_stream(self.seed, round, "feddf", key)
            with suppress(FloatingPointError):
                students[key] = fit(self.pool[key].spec, state, self.public.x, loss, how, generator, self.held_out)
        self.record("distillation", {key: {"steps": one.steps, "loss": one.loss} for key, one in students.items()})
        self.report_diverged(round, [key for key in self.keys if key in means and key not in students])
        return {key: students[key].state if key in students else state for key, state in means.items()}
