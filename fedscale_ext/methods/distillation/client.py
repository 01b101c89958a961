"""Clients that report logits of public samples, and may keep their models to themselves (FedMD, DS-FL, FedGEMS).

A client first learns of the public samples from the last target, then trains on its own samples. Then it reports its
model's logits of public samples. In the papers, learning of public samples ends a round. Here it opens the next one, so
that a client and the server meet once a round.

``conf.client_state`` is the client's model. It is empty before the client's first round, which begins with the initial
model of its type. It is None if the method's clients keep no models; they train the model that they receive.

``conf.shared_tensors`` has the public samples ``x`` [n, C, H, W] and, if they have the clients' classes, their
``labels`` [n]. All clients learn from ``rows`` [m] and their ``target`` [m, classes], and report the logits of the rows
``asked`` [a]. A client that fine-tunes its served model (``personalise_epochs``) has no shared tensors: it trains on
its own samples alone.

``conf.objective["public"]`` lists the phases of learning. Each has a ``loss``, ``epochs`` and a ``batch_size``;
``told`` says whether it takes only ``rows`` or all public samples.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.method import (
    Bench,
    ClientConfig,
    ClientSamples,
    Cohort,
    MultiModelClient,
    State,
    torch_stream,
)
from fedscale_ext.methods.distillation.fitting import batches, predicted
from fedscale_ext.methods.distillation.losses import of_clients
from fedscale_ext.methods.personal.personal_models import PersonalModelClient
from fedscale_ext.models.layers.final_layer import deepest

LOGITS = "logits"  # name of what a client says


class PublicPhase(MultiModelClient):
    """Steps on public samples: a sample's label is its index, by which target and class are looked up."""

    loss_key: Hashable = None  # targets are other ones in each round: steps cannot be recorded

    def __init__(self, conf: ClientConfig, bench: Bench, phase: Mapping[str, Any], shared: State) -> None:
        super().__init__(conf, bench)
        rows = shared["rows"] if phase["told"] else torch.arange(len(shared["x"]))
        self.samples = ClientSamples(shared["x"][rows], torch.arange(len(rows), device=shared["x"].device))
        self._labels = shared["labels"][rows] if "labels" in shared else None
        self._target = shared["target"] if phase["told"] else None
        self._loss = of_clients(phase["loss"], phase.get("epsilon", 1.0))
        self._phase = phase

    def config(self, conf: ClientConfig) -> ClientConfig:
        """Return the client's configuration for this phase; its random streams have keys of their own."""
        phase = replace(
            conf,
            round=f"{conf.round} {self._phase['loss']}",
            held_out=0.0,
            own_classes=False,
            batch_size=self._phase["batch_size"],
            local_epochs=self._phase["epochs"],
        )
        return replace(phase, local_steps=len(self.batches(len(self.samples), phase)))

    def batches(self, samples: int, conf: ClientConfig) -> list[np.ndarray]:
        """Rows of each batch, in the phase's epochs over all samples."""
        generator = torch_stream(conf.seed, conf.round, conf.client_id, "public")
        drawn = (batches(samples, conf.batch_size, generator) for _ in range(self._phase["epochs"]))
        return [rows.numpy() for epoch in drawn for rows in epoch]

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """Loss of each sample, [...], from logits [..., classes] and the samples' indices int64 [...]."""
        logits = deepest(output, labels.dim() + 1)
        target, classes = (None if each is None else each[labels] for each in (self._target, self._labels))
        return self._loss(logits, target, classes)


class LogitsClient(PersonalModelClient):
    """Client that keeps its model, trains it on public samples and its own, and reports logits."""

    def prepare(self, model: nn.Module, conf: ClientConfig) -> None:
        """Learn of public samples, phase by phase."""
        for phase in self._phases(conf):
            phase.train(phase.samples, model, phase.config(conf))

    def prepare_cohort(self, cohort: Cohort, confs: Sequence[ClientConfig]) -> dict[int, Exception]:
        """Learn of public samples side by side, and return failures by row."""
        failed: dict[int, Exception] = {}
        for phase in self._phases(confs[0]):
            results = phase.train_cohort([phase.samples] * len(confs), cohort, [phase.config(conf) for conf in confs])
            failed.update({row: one for row, one in enumerate(results) if isinstance(one, Exception)})
        return failed

    def _phases(self, conf: ClientConfig) -> Iterator[PublicPhase]:
        shared = conf.shared_tensors
        if shared is None:
            return
        for phase in conf.objective.get("public", ()):
            if not phase["told"] or "rows" in shared:
                yield PublicPhase(conf, self.bench, phase, shared)

    def tensors_to_send(self, model: nn.Module, data: ClientSamples, conf: ClientConfig) -> State:
        """Return the model's logits [rows, classes] of the public samples that the server asks for."""
        assert conf.shared_tensors is not None
        asked = conf.shared_tensors["x"][conf.shared_tensors["asked"]]
        logits = predicted(model.eval(), asked, conf.test_bsz)
        if not torch.isfinite(logits).all():
            raise FloatingPointError("its logits are not finite")
        return {LOGITS: logits}
