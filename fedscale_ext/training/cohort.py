"""Clients of one spec trained at once: the same steps as one after another, with a leading axis of clients.

Ragged clients are exact. One with fewer steps leaves early: clients stand in the order of falling
steps, so those who still train are always the first ones. One whose batch is smaller than another's, for it has
fewer samples or its epoch ends, has rows that are no samples; they weigh nothing in its loss and its BatchNorm
leaves them out.
"""

from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.streams import torch_stream
from fedscale_ext.models.stacked.network import Stacked
from fedscale_ext.training import cuda_graph
from fedscale_ext.training.adam import AdamSteps
from fedscale_ext.training.label_mask import masked, present
from fedscale_ext.training.optimizers import Optimizer, Running, optimizer_of
from fedscale_ext.training.outcome import result
from fedscale_ext.training.resident import Cohort, autocast
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.training.scaffold import in_order
from fedscale_ext.training.sgd import Masks, Steps, masks_of

if TYPE_CHECKING:
    from fedscale_ext.training.local_training import MultiModelClient


def train_together(
    client: "MultiModelClient", data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[Namespace]
) -> list[dict[str, Any] | Exception]:
    """See :meth:`MultiModelClient.train_cohort`; ``cohort`` was restored to the clients' start."""
    batches = [client.batches(len(own), conf) for own, conf in zip(data, confs, strict=True)]
    steps = [len(own) for own in batches]
    if steps != sorted(steps, reverse=True):
        raise ValueError("the clients of a cohort must stand in the order of falling steps")
    views = [own.views(rows, conf) for own, rows, conf in zip(data, batches, confs, strict=True)]
    with _drawing(cohort, confs):
        losses = _run(client, data, batches, views, cohort, confs)
    results: list[dict[str, Any] | Exception] = []
    for place, (own, conf) in enumerate(zip(batches, confs, strict=True)):
        try:
            seen = zip(losses[: len(own), place], own, strict=True)
            results.append(result(conf, len(data[place]), [step[: len(rows)] for step, rows in seen]))
        except FloatingPointError as error:
            results.append(error)
    return results


def drawn_by(conf: Namespace) -> torch.Generator:
    """What a client's dropout layers draw from, alone and in a cohort."""
    return torch_stream(conf.seed, conf.round, conf.client_id, "dropout")


def _drawing(cohort: Cohort, confs: Sequence[Namespace]) -> AbstractContextManager[None]:
    if not cohort.draws:
        return nullcontext()
    assert isinstance(cohort.network, Stacked)
    return cohort.network.drawing([drawn_by(conf) for conf in confs])


def _run(
    client: "MultiModelClient",
    data: Sequence[ClientSamples],
    batches: Sequence[Sequence[np.ndarray]],
    views: Sequence[np.ndarray | None],
    cohort: Cohort,
    confs: Sequence[Namespace],
) -> Tensor:
    """All steps; the losses [steps, K, B] of those who trained (0 elsewhere), on the CPU."""
    conf, offset, kept = confs[0], in_order(confs, cohort.trainable), masks_of(confs, cohort.trainable)
    x, y = torch.cat([own.x for own in data]), torch.cat([own.y for own in data])
    rows, sizes = _rows([len(own) for own in data], batches)
    rows = rows.to(y.device)
    seen, augmentation = _laid(views, rows.shape).to(y.device), data[0].augmentation
    losses = x.new_zeros(len(rows), len(data), rows.shape[1])
    labels = [own.y for own in data] if conf.own_classes else None
    record = bool((sizes == sizes[0, 0]).all()) and labels is None and not (offset or kept)
    step = _first_step(client, cohort, _mask(sizes[0]).to(y.device), conf, x, labels, offset, kept, record=record)
    for number, now in enumerate(sizes):
        if isinstance(step, CohortStep) and number and not np.array_equal(now, sizes[number - 1]):
            step = step.on(_mask(now).to(y.device))
        clients, width = int((now > 0).sum()), int(now.max())
        picked = rows[number, :width, :clients]
        batch = x.index_select(0, picked.flatten())
        if augmentation is not None:
            batch = augmentation.apply(batch, seen[number, :width, :clients].flatten(0, 1))
        losses[number, :clients, :width] = step(batch.view(*picked.shape, *x.shape[1:]), y[picked])
    return losses.cpu()


class CohortStep:
    """One step of the first clients of a cohort; ``mask`` bool [B, clients] tells which rows are samples, ``kept``
    which entries of the parameters train."""

    def __init__(
        self,
        client: "MultiModelClient",
        cohort: Cohort,
        mask: Tensor,
        precision: str,
        optimizer: Optimizer | Running,
        labels: Sequence[Tensor] | None = None,
        offset: list[Tensor] | None = None,
        kept: Masks | None = None,
    ) -> None:
        self.clients = mask.shape[1]
        self._client, self._cohort, self._precision = client, cohort, precision
        self._labels = labels  # of each client, where their own classes are all that they learn
        self._present: Tensor | None = None
        full = bool(mask.all())
        self._parameters = cohort.bind(self.clients, None if full else mask)
        self._optimizer: Running
        if isinstance(optimizer, Steps | AdamSteps):
            self._optimizer = optimizer
        else:
            self._optimizer = optimizer.begin(self._parameters, offset, kept)
        self._samples = None if full else mask.t()  # [k, B]
        here = mask.t().to(self._parameters[0].dtype)
        self._weight = here / here.sum(1, keepdim=True)  # of a sample in the mean over its client's batch

    def on(self, mask: Tensor) -> "CohortStep":
        """The same for other batches, of fewer clients maybe, whose optimisers go on."""
        optimizer = self._optimizer.first(mask.shape[1])
        return CohortStep(self._client, self._cohort, mask, self._precision, optimizer, self._labels)

    def restart(self) -> None:
        """Begin anew, from the cohort's tensors as they are."""
        self._optimizer.restart(self._parameters)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Samples [B, k, C, H, W] and labels [B, k] -> the losses [k, B] before the step."""
        if self._cohort.channels_last:
            flat = x.flatten(1, 2).contiguous(memory_format=torch.channels_last)
            x = flat.unflatten(1, x.shape[1:3])
        with autocast(x.device, self._precision):
            output = self._cohort.network(x).to(x.dtype)
        if self._labels is not None:
            if self._present is None:
                there = present(self._labels[: self.clients], output.shape[-1])
                self._present = there.view(len(there), *[1] * (output.dim() - 2), -1)
            output = masked(output, self._present)
        losses = self._client.losses(output, y.t())
        weighted = losses * self._weight
        if self._samples is not None:  # where, not a product: a row that is no sample may have any loss
            weighted = torch.where(self._samples, weighted, 0)
        gradients = list(torch.autograd.grad(weighted.sum(), self._parameters))
        self._optimizer.step(self._parameters, gradients, cohort=True)
        self._cohort.advance()
        return losses.detach()


def _first_step(
    client: "MultiModelClient",
    cohort: Cohort,
    mask: Tensor,
    conf: Namespace,
    x: Tensor,
    labels: Sequence[Tensor] | None,
    offset: list[Tensor],
    kept: Masks,
    *,
    record: bool,
) -> CohortStep | cuda_graph.RecordedStep:
    """The step with which a cohort begins; where its shapes are static, recorded once and kept with the cohort."""
    optimizer = optimizer_of(conf)
    cohort.begin(optimizer, mask.shape[1], conf.local_steps, len(mask))
    if not (cohort.records and record) or client.loss_key is None:
        return CohortStep(client, cohort, mask, conf.precision, optimizer, labels, offset, kept)
    key = type(client), client.loss_key, tuple(mask.shape), x.shape[1:], conf.precision, optimizer
    step = cohort.recorded.get(key)
    if step is None:
        plain = CohortStep(client, cohort, mask, conf.precision, optimizer)
        empty = x.new_zeros(*mask.shape, *x.shape[1:]), torch.zeros_like(mask, dtype=torch.int64)
        step = cohort.recorded[key] = cuda_graph.RecordedStep(plain, *empty)
        cohort.restart()  # recording has trained
    step.restart()
    return step


def _mask(sizes: np.ndarray) -> Tensor:
    """Which rows of a step are samples, bool [B, k], for the k clients whose batches [K] are not empty."""
    return torch.from_numpy(np.arange(sizes.max())[:, None] < sizes[sizes > 0])


def _laid(views: Sequence[np.ndarray | None], shape: Sequence[int]) -> Tensor:
    """How each row of each step is seen: int64 [steps, B, K, columns], zeros (unchanged) where there is no sample."""
    columns = next((own.shape[2] for own in views if own is not None), 0)
    laid = np.zeros((*shape, columns), dtype=np.int64)
    for place, own in enumerate(views):
        if own is not None:
            laid[: own.shape[0], : own.shape[1], place] = own
    return torch.from_numpy(laid)


def _rows(samples: Sequence[int], batches: Sequence[Sequence[np.ndarray]]) -> tuple[Tensor, np.ndarray]:
    """Row numbers in the clients' samples laid end to end, int64 [steps, B, K], and how many of each step's and
    client's are samples, int64 [steps, K]."""
    steps = max(map(len, batches))
    sizes = np.zeros((steps, len(batches)), dtype=np.int64)
    for place, own in enumerate(batches):
        sizes[: len(own), place] = list(map(len, own))
    width = sizes.max()
    begins = np.cumsum([0, *samples[:-1]])
    # a row that is no sample repeats one of its own client: what it holds cannot reach another
    rows = np.broadcast_to(begins, (steps, width, len(batches))).copy()
    for place, (begin, own) in enumerate(zip(begins, batches, strict=True)):
        for step, picked in enumerate(own):
            rows[step, : len(picked), place] = picked + begin
    return torch.from_numpy(rows), sizes
