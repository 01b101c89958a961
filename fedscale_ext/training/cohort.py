"""Trains clients of one spec at once: the same steps as one after another, with a leading axis of clients.

Ragged clients are exact. Clients stand in the order of falling numbers of steps, so that those who still train are
always the first ones. A client's batch may be smaller than another's, because it has fewer samples or its epoch ends.
Its further rows are padding: they weigh nothing in its loss, and its BatchNorm leaves them out.

Shapes use K for the clients of the cohort, k <= K for those that train in a step, B for the rows of a batch.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.streams import torch_stream
from fedscale_ext.models.layers.final_layer import deepest
from fedscale_ext.models.stacked.network import Stacked
from fedscale_ext.training import cuda_graph
from fedscale_ext.training.label_mask import masked, present
from fedscale_ext.training.optimizers.adam import AdamSteps
from fedscale_ext.training.optimizers.choice import Optimizer, Running, optimizer_of
from fedscale_ext.training.optimizers.sgd import Masks, Steps, stacked_masks
from fedscale_ext.training.outcome import result
from fedscale_ext.training.resident import Cohort, autocast
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.training.scaffold import stacked_offsets

if TYPE_CHECKING:
    from fedscale_ext.training.local_training import MultiModelClient


def train_together(
    client: "MultiModelClient", data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[ClientConfig]
) -> list[dict[str, Any] | Exception]:
    """Train the clients of a cohort; see :meth:`MultiModelClient.train_cohort`.

    Args:
        client: Runs the losses and draws the batches of every client.
        data: Samples of each client.
        cohort: The stacked network, restored to the clients' start.
        confs: Settings of each client, in the order of falling numbers of steps.

    Returns:
        FedScale's result of each client, or the FloatingPointError of a client whose loss is not finite.

    Raises:
        ValueError: If the clients are in another order.

    """
    batches = [client.batches(len(samples), conf) for samples, conf in zip(data, confs, strict=True)]
    num_steps = list(map(len, batches))
    if num_steps != sorted(num_steps, reverse=True):
        raise ValueError("the clients of a cohort must stand in the order of falling steps")
    views = [samples.views(rows, conf) for samples, rows, conf in zip(data, batches, confs, strict=True)]
    with _drawing(cohort, confs):
        losses = _run(client, data, batches, views, cohort, confs)  # [steps, K, B]
    results: list[dict[str, Any] | Exception] = []
    for index, (client_batches, conf) in enumerate(zip(batches, confs, strict=True)):
        steps = zip(losses[: len(client_batches), index], client_batches, strict=True)
        try:
            results.append(result(conf, len(data[index]), [step[: len(rows)] for step, rows in steps]))
        except FloatingPointError as error:
            results.append(error)
    return results


def dropout_generator(conf: ClientConfig) -> torch.Generator:
    """Return the stream of a client's dropout layers, the same alone and in a cohort."""
    return torch_stream(conf.seed, conf.round, conf.client_id, "dropout")


def _drawing(cohort: Cohort, confs: Sequence[ClientConfig]) -> AbstractContextManager[None]:
    if not cohort.draws:
        return nullcontext()
    assert isinstance(cohort.network, Stacked)
    return cohort.network.drawing([dropout_generator(conf) for conf in confs])


def _run(
    client: "MultiModelClient",
    data: Sequence[ClientSamples],
    batches: Sequence[Sequence[np.ndarray]],
    views: Sequence[np.ndarray | None],
    cohort: Cohort,
    confs: Sequence[ClientConfig],
) -> Tensor:
    """Take all steps; return the losses [steps, K, B] on the CPU, which are 0 in padded rows."""
    plan = _BatchPlan(data, batches, views)
    labels = [samples.y for samples in data] if confs[0].own_classes else None
    offset, masks = stacked_offsets(confs, cohort.trainable), stacked_masks(confs, cohort.trainable)
    # a recording is replayed for other samples, and for nothing else that differs between clients or rounds
    alike = labels is None and not (offset or masks) and client.loss_key is not None
    recorded = cohort.records and plan.static and alike
    if recorded:
        plan.repeat_last(cuda_graph.recorded_clients(len(data), cohort.clients))
    mask, optimizer, precision = plan.mask(0), optimizer_of(confs[0]), confs[0].precision
    cohort.begin(optimizer, mask.shape[1], confs[0].local_steps, len(mask))
    step: CohortStep | cuda_graph.RecordedStep
    if recorded:
        step = _recorded_step(client, cohort, mask, plan.x, precision, optimizer)
    else:
        step = CohortStep(client, cohort, mask, precision, optimizer, labels, offset, masks)
    losses = plan.x.new_zeros(*plan.sizes.shape, plan.rows.shape[1])  # [steps, K, B]
    for number in range(len(plan.sizes)):
        if isinstance(step, CohortStep) and plan.mask_changes(number):
            step = step.with_mask(plan.mask(number))
        x, y = plan.batch(number)  # [B, k, C, H, W], [B, k]
        width, clients = y.shape
        losses[number, :clients, :width] = step(x, y)
    return losses[:, : len(data)].cpu()


class _BatchPlan:
    """The samples of a cohort laid end to end, and the rows that each step reads.

    Attributes:
        x: Samples [n, C, H, W] of all clients.
        y: Their labels [n].
        rows: Row numbers in ``x``, int64 [steps, B, K].
        sizes: Number of rows of a step and client that are samples, int64 [steps, K].

    """

    def __init__(
        self,
        data: Sequence[ClientSamples],
        batches: Sequence[Sequence[np.ndarray]],
        views: Sequence[np.ndarray | None],
    ) -> None:
        self.x, self.y = torch.cat([samples.x for samples in data]), torch.cat([samples.y for samples in data])
        rows, self.sizes = _stacked_rows([len(samples) for samples in data], batches)
        self.rows = rows.to(self.y.device)
        self._views = _stacked_views(views, rows.shape).to(self.y.device)  # [steps, B, K, columns]
        self._augmentation = data[0].augmentation

    @property
    def static(self) -> bool:
        """Whether every step has the same shape and no padding."""
        return bool((self.sizes == self.sizes[0, 0]).all())

    def repeat_last(self, clients: int) -> None:
        """Let further clients, up to ``clients``, train on the last one's samples."""
        last = torch.arange(clients).clamp(max=self.rows.shape[2] - 1)  # [clients]
        on_device = last.to(self.rows.device)
        self.rows, self._views = self.rows[..., on_device], self._views.index_select(2, on_device)
        self.sizes = self.sizes[:, last.numpy()]

    def mask_changes(self, number: int) -> bool:
        """Return whether the step's rows that are samples differ from those of the step before."""
        return number > 0 and not np.array_equal(self.sizes[number], self.sizes[number - 1])

    def mask(self, number: int) -> Tensor:
        """Return which rows of a step are samples, bool [B, k], for the k clients whose batches are not empty."""
        sizes = self.sizes[number]  # [K]
        return torch.from_numpy(np.arange(sizes.max())[:, None] < sizes[sizes > 0]).to(self.y.device)

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the step's samples [B, k, C, H, W], augmented, and their labels [B, k]."""
        sizes = self.sizes[number]
        clients, width = int((sizes > 0).sum()), int(sizes.max())
        picked = self.rows[number, :width, :clients]  # [B, k]
        x = self.x.index_select(0, picked.flatten())  # [B * k, C, H, W]
        if self._augmentation is not None:
            x = self._augmentation.apply(x, self._views[number, :width, :clients].flatten(0, 1))
        return x.view(*picked.shape, *self.x.shape[1:]), self.y[picked]


class CohortStep:
    """One step of the first k clients of a cohort.

    Attributes:
        client: Computes the losses.
        parameters: The clients' trainable parameters, each [k, *shape].
        optimizer: The optimizer under way.
        weight: Share of a row in its client's mean loss [k, B].

    Args:
        client: Computes the losses.
        cohort: The stacked network and its tensors.
        mask: Which rows are samples, bool [B, k].
        precision: Precision of the forward pass, float32 or bfloat16.
        optimizer: An optimizer to begin with, or one under way.
        labels: Labels of each client, if its loss has its own classes only.
        offset: Added to the gradients of each parameter, [k, *shape].
        masks: Which entries of each parameter train, bool [k, *shape].

    """

    def __init__(
        self,
        client: "MultiModelClient",
        cohort: Cohort,
        mask: Tensor,
        precision: str,
        optimizer: Optimizer | Running,
        labels: Sequence[Tensor] | None = None,
        offset: list[Tensor] | None = None,
        masks: Masks | None = None,
    ) -> None:
        self.clients = mask.shape[1]
        self.client, self._cohort, self._precision = client, cohort, precision
        self._labels = labels
        self._present: Tensor | None = None  # bool [k, 1, classes], known from the first output on
        full = bool(mask.all())
        self.parameters = cohort.bind(self.clients, None if full else mask)
        self.optimizer: Running
        if isinstance(optimizer, Steps | AdamSteps):
            self.optimizer = optimizer
        else:
            self.optimizer = optimizer.begin(self.parameters, offset, masks)
        self._samples = None if full else mask.t()  # [k, B]
        is_sample = mask.t().to(self.parameters[0].dtype)  # [k, B]
        self.weight = is_sample / is_sample.sum(1, keepdim=True)

    def with_mask(self, mask: Tensor) -> "CohortStep":
        """Return the step for other rows, perhaps of fewer clients; the optimizer's state goes on."""
        optimizer = self.optimizer.first(mask.shape[1])
        return CohortStep(self.client, self._cohort, mask, self._precision, optimizer, self._labels)

    def restart(self) -> None:
        """Restart the optimizer from the cohort's present tensors."""
        self.optimizer.restart(self.parameters)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Take a step.

        Args:
            x: Samples [B, k, C, H, W].
            y: Labels [B, k].

        Returns:
            The losses [k, B] before the step.

        """
        if self._cohort.channels_last:
            flat = x.flatten(1, 2).contiguous(memory_format=torch.channels_last)  # [B, k * C, H, W]
            x = flat.unflatten(1, x.shape[1:3])
        with autocast(x.device, self._precision):
            output, features = self._outputs(x)
        if self._labels is not None:
            output = masked(output, self._present_classes(output))
        self.client.is_sample = self._samples
        if features is None:
            losses = self.client.losses(output, y.t())  # [k, B]
        else:
            losses = self.client.feature_losses(output, features, y.t())
        self.client.is_sample = None
        weighted = losses * self.weight
        if self._samples is not None:  # where, not a product: a padded row may have any loss
            weighted = torch.where(self._samples, weighted, 0)
        gradients = list(torch.autograd.grad(weighted.sum(), self.parameters))
        self.optimizer.step(self.parameters, gradients, cohort=True)
        self._cohort.advance()
        return losses.detach()

    def _outputs(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return logits [k, B, classes] or [k, B, exits, classes], and features [k, B, F] if the client taps them."""
        network = self._cohort.network
        if self.client.tap is None:
            return network(x).to(x.dtype), None
        self.client.tapped = network.linear(self.client.tap)
        with network.tapped(self.client.tap) as last:
            output = network(x)
        return output.to(x.dtype), deepest(last.features, 3).to(x.dtype)

    def _present_classes(self, output: Tensor) -> Tensor:
        """Return which classes each client has, bool in a shape that broadcasts to ``output``."""
        if self._present is None:
            assert self._labels is not None
            classes = present(self._labels[: self.clients], output.shape[-1])  # [k, classes]
            self._present = classes.view(len(classes), *[1] * (output.dim() - 2), -1)
        return self._present


def _recorded_step(
    client: "MultiModelClient", cohort: Cohort, mask: Tensor, x: Tensor, precision: str, optimizer: Optimizer
) -> cuda_graph.RecordedStep:
    """Return the recording of a step on samples like ``x`` [n, C, H, W]; made once, it is kept with the cohort.

    Recordings of another learning rate are dropped: a job's rate falls, and each of them holds memory of the GPU.
    """
    key = type(client), client.loss_key, tuple(mask.shape), x.shape[1:], precision, optimizer
    step = cohort.recorded.get(key)
    if step is None:
        cohort.recorded = {each: old for each, old in cohort.recorded.items() if each[-1].lr == optimizer.lr}
        plain = CohortStep(client, cohort, mask, precision, optimizer)
        empty = x.new_zeros(*mask.shape, *x.shape[1:]), torch.zeros_like(mask, dtype=torch.int64)
        step = cohort.recorded[key] = cuda_graph.RecordedStep(plain, *empty)
        cohort.restart()  # because recording trains
    step.restart()
    return step


def _stacked_views(views: Sequence[np.ndarray | None], shape: Sequence[int]) -> Tensor:
    """Stack the clients' augmentations to int64 [steps, B, K, columns]; zeros (unchanged) in padded rows.

    Args:
        views: Of each client int64 [steps, B, columns], or None without augmentation.
        shape: (steps, B, K).

    """
    columns = next((client_views.shape[2] for client_views in views if client_views is not None), 0)
    stacked = np.zeros((*shape, columns), dtype=np.int64)
    for index, client_views in enumerate(views):
        if client_views is not None:
            stacked[: client_views.shape[0], : client_views.shape[1], index] = client_views
    return torch.from_numpy(stacked)


def _stacked_rows(samples: Sequence[int], batches: Sequence[Sequence[np.ndarray]]) -> tuple[Tensor, np.ndarray]:
    """Stack the clients' batches.

    Args:
        samples: Number of samples of each client.
        batches: Row numbers of each client's steps, within its own samples.

    Returns:
        Row numbers in the clients' samples laid end to end, int64 [steps, B, K], and how many of each step's and
        client's are samples, int64 [steps, K].

    """
    steps = max(map(len, batches))
    sizes = np.zeros((steps, len(batches)), dtype=np.int64)
    for index, client_batches in enumerate(batches):
        sizes[: len(client_batches), index] = list(map(len, client_batches))
    width = sizes.max()
    begins = np.cumsum([0, *samples[:-1]])  # [K]
    # a padded row repeats one of its own client, so that its content cannot reach another
    rows = np.broadcast_to(begins, (steps, width, len(batches))).copy()
    for index, (begin, client_batches) in enumerate(zip(begins, batches, strict=True)):
        for step, picked in enumerate(client_batches):
            rows[step, : len(picked), index] = picked + begin
    return torch.from_numpy(rows), sizes
