"""Clients of one spec trained at once: the same steps as one after another, with a leading axis of clients.

Ragged clients are exact. One with fewer steps leaves early: clients stand in the order of falling
steps, so those still training are always the first ones. One with fewer samples than a batch has rows
that are no samples; they weigh nothing in its loss and its BatchNorm leaves them out.
"""

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.runtime.outcome import result
from fedscale_ext.runtime.resident import Cohort, autocast
from fedscale_ext.runtime.samples import ClientSamples
from fedscale_ext.runtime.sgd import Sgd, Steps

if TYPE_CHECKING:
    from fedscale_ext.runtime.training import MultiModelClient


def train_together(
    client: "MultiModelClient", data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[Namespace]
) -> list[dict[str, Any] | Exception]:
    """See :meth:`MultiModelClient.train_cohort`; ``cohort`` was restored to the clients' start."""
    order = sorted(range(len(data)), key=lambda place: -confs[place].local_steps)
    batches = [client.batches(len(data[place]), confs[place]) for place in order]
    losses = _run(client, [data[place] for place in order], batches, cohort, confs[0])
    states = cohort.states([len(own) for own in batches])
    results: dict[int, dict[str, Any] | Exception] = {}
    for number, place in enumerate(order):
        steps, size = batches[number].shape
        own = torch.stack([step[number, :size] for step in losses[:steps]])
        try:
            results[place] = result(confs[place], len(data[place]), own, states[number])
        except FloatingPointError as error:
            results[place] = error
    return [results[place] for place in range(len(data))]


def _run(
    client: "MultiModelClient",
    data: Sequence[ClientSamples],
    batches: Sequence[np.ndarray],
    cohort: Cohort,
    conf: Namespace,
) -> list[Tensor]:
    """All steps of clients in the order of falling steps: per step the losses [k, B] of those k who train."""
    x, y = torch.cat([own.x for own in data]), torch.cat([own.y for own in data])
    rows, mask = (each.to(y.device) for each in _rows([len(own) for own in data], batches))
    ragged = not bool(mask.all())
    active = [sum(len(own) > step for own in batches) for step in range(len(rows))]
    step = None
    optimizer = None
    losses = []
    for number, clients in enumerate(active):
        if step is None or clients != step.clients:
            parameters = cohort.bind(clients, mask[:, :clients] if ragged else None)
            optimizer = Sgd.of(conf).begin(parameters) if optimizer is None else optimizer.first(clients)
            step = CohortStep(client, cohort, parameters, mask[:, :clients], optimizer, conf.precision)
        picked = rows[number, :, :clients]
        batch = x.index_select(0, picked.flatten()).view(*picked.shape, *x.shape[1:])
        losses.append(step(batch, y[picked]))
    return losses


class CohortStep:
    """One SGD step of the first ``clients`` clients of a cohort."""

    def __init__(
        self,
        client: "MultiModelClient",
        cohort: Cohort,
        parameters: list[Tensor],
        mask: Tensor,
        optimizer: Steps,
        precision: str,
    ) -> None:
        self.clients = mask.shape[1]
        self._client, self._cohort, self._parameters = client, cohort, parameters
        self._optimizer, self._precision = optimizer, precision
        self._samples = None if bool(mask.all()) else mask.t()  # [k, B]
        here = mask.t().to(parameters[0].dtype)
        self._weight = here / here.sum(1, keepdim=True)  # of a sample in the mean over its client's batch

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Samples [B, k, C, H, W] and labels [B, k] -> the losses [k, B] before the step."""
        if self._cohort.channels_last:
            flat = x.flatten(1, 2).contiguous(memory_format=torch.channels_last)
            x = flat.unflatten(1, x.shape[1:3])
        with autocast(x.device, self._precision):
            output = self._cohort.network(x)
        losses = self._client.losses(output.to(x.dtype), y.t())
        weighted = losses * self._weight
        if self._samples is not None:  # where, not a product: a row that is no sample may have any loss
            weighted = torch.where(self._samples, weighted, 0)
        gradients = list(torch.autograd.grad(weighted.sum(), self._parameters))
        self._optimizer.step(self._parameters, gradients, cohort=True)
        return losses.detach()


def _rows(samples: Sequence[int], batches: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Row numbers in the clients' samples laid end to end, int64 [steps, B, K], and which rows are
    samples, bool [B, K]."""
    width, steps = max(own.shape[1] for own in batches), max(map(len, batches))
    rows = np.zeros((steps, width, len(batches)), dtype=np.int64)
    mask = np.zeros((width, len(batches)), dtype=bool)
    for place, (begin, own) in enumerate(zip(np.cumsum([0, *samples]), batches, strict=False)):
        rows[: len(own), : own.shape[1], place] = own + begin
        mask[: own.shape[1], place] = True
    return torch.from_numpy(rows), torch.from_numpy(mask)
