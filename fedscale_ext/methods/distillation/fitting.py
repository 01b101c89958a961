"""A model of the server learns from public data: FedDF's students, the server models of DS-FL, FedGEMS and Fed-ET.

Training that diverges raises FloatingPointError, as a client's does (``training/local_training.py``). A model with
numbers that are not finite is never adopted: the server keeps the state before, and reports it.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedscale_ext.method import ModelSpec, State
from fedscale_ext.models import parameter_names
from fedscale_ext.models.layers.dropout import DrawnFrom
from fedscale_ext.models.layers.final_layer import deepest
from fedscale_ext.models.registry import skeleton
from fedscale_ext.training.optimizers.adam import Adam, AdamSteps
from fedscale_ext.training.optimizers.choice import Running
from fedscale_ext.training.optimizers.sgd import Sgd

_AT_ONCE = 64  # samples, where nothing is learnt
_LOOKS = 10  # at the held-out samples, in as many steps as patience has
LossOf = Callable[[Tensor, Tensor], Tensor]  # logits [B, classes] and rows of the samples [B] -> losses [B]


def batches(count: int, size: int, generator: torch.Generator) -> list[Tensor]:
    """Rows of each batch of an epoch.

    A single sample at the end joins the batch before, as BatchNorm needs two.

    Args:
        count: Number of samples.
        size: Samples of a batch.
        generator: Shuffles the samples.

    Returns:
        int64 [size] of each batch.

    """
    batches = list(torch.randperm(count, generator=generator).split(size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def check_finite(tensors: Iterable[Tensor], what: str) -> None:
    """Raise FloatingPointError, which names ``what`` has diverged, unless every number is finite."""
    if not all(bool(torch.isfinite(each).all()) for each in tensors):
        raise FloatingPointError(f"{what} has diverged: not all of its numbers are finite")


@dataclass(frozen=True)
class Fit:
    """How a model learns: ``steps`` of batches, or ``epochs`` over the samples where that is given.

    ``cosine``: lr falls to zero over the steps. ``patience``: it ends after so many steps in which the loss on held-out
    samples has not fallen, and the best state counts. These judge about ten times in so many steps, and after the last.
    """

    lr: float
    batch_size: int
    steps: int = 0
    epochs: int = 0
    optimizer: Literal["adam", "sgd"] = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    cosine: bool = False
    patience: int | None = None

    def begin(self, parameters: list[Tensor]) -> Running:
        """Create the optimiser, before its first step."""
        if self.optimizer == "adam":
            return Adam(self.lr, 0.9, 0.999, 1e-8, self.weight_decay, 0.0, None).begin(parameters)
        return Sgd(self.lr, self.momentum, self.weight_decay, 0.0, None).begin(parameters)


@dataclass(frozen=True)
class Fitted:
    """A trained state, the number of ``steps``, and the mean ``loss`` over the last epoch's worth of them."""

    state: State
    steps: int
    loss: float


def predicted(run: Callable[[Tensor], Tensor], x: Tensor, at_once: int = _AT_ONCE) -> Tensor:
    """Logits float32 [n, classes] of samples x [n, C, H, W], on the CPU; ``run`` is a network in evaluation."""
    with torch.no_grad():
        return torch.cat([deepest(run(part), 2).float().cpu() for part in x.split(at_once)])


def logits_of(spec: ModelSpec, state: State, x: Tensor) -> Tensor:
    """Logits float32 [n, classes] of samples x [n, C, H, W], from a model's spec and state."""
    return predicted(partial(functional_call, skeleton(spec).eval(), state), x)


def fit(
    spec: ModelSpec,
    state: State,
    x: Tensor,
    loss: LossOf,
    how: Fit,
    generator: torch.Generator,
    held_out: Tensor | None = None,
) -> Fitted:
    """Train a model on public samples.

    Args:
        spec: The model.
        state: Its state before.
        x: Samples [n, C, H, W].
        loss: Losses [B] from logits [B, classes] and rows [B].
        how: Optimiser and number of steps.
        generator: Orders the samples; dropout draws from it.
        held_out: Rows int64 that the model does not learn from and that judge it.

    Returns:
        The trained state and its figures.

    Raises:
        FloatingPointError: The loss, the state or its answers are not finite.

    """
    student = _Student(spec, state, how, generator)
    learnt = torch.arange(len(x)) if held_out is None else _others(len(x), held_out)
    judged = held_out if how.patience is not None else None
    best, best_loss, best_step = student.copied(), math.inf, 0
    if judged is not None:
        best_loss = student.judged(x, loss, judged)
    interval = max(1, (how.patience or 0) // _LOOKS)
    losses: list[float] = []
    for step, indices in enumerate(_drawn(len(learnt), how, generator), start=1):
        rows = learnt[indices]
        rate = how.lr * (1 + math.cos(math.pi * (step - 1) / how.steps)) / 2 if how.cosine else how.lr
        losses.append(student.step(x[rows], rows, loss, rate))
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"the model has diverged: its loss is not finite in step {step}")
        if judged is not None and how.patience is not None and step % interval == 0:
            now = student.judged(x, loss, judged)
            if now < best_loss:
                best, best_loss, best_step = student.copied(), now, step
            if step - best_step >= how.patience:
                break
    if judged is not None and len(losses) % interval != 0 and student.judged(x, loss, judged) < best_loss:
        best = student.copied()
    epoch = math.ceil(len(learnt) / how.batch_size)
    mean = sum(losses[-epoch:]) / max(1, len(losses[-epoch:]))
    new = student.copied() if judged is None else best
    check_finite(new.values(), "the model")
    if judged is None:  # the best one's answers were finite when it was judged
        check_finite([logits_of(spec, new, x[learnt])], "the model")
    return Fitted(new, len(losses), mean)


class _Student:
    """A model's tensors, run by a skeleton. Training changes its buffers; its dropout draws from ``generator``."""

    def __init__(self, spec: ModelSpec, state: State, how: Fit, generator: torch.Generator) -> None:
        self._module: nn.Module = skeleton(spec)
        self._generator = generator
        self._state = {name: tensor.detach().clone() for name, tensor in state.items()}
        self._learnt = [self._state[name].requires_grad_() for name in parameter_names(spec)]
        self._how = how
        self._running: Running | None = None

    def step(self, x: Tensor, rows: Tensor, loss: LossOf, lr: float) -> float:
        """Take a step on a batch x [B, C, H, W]; return its mean loss before the step."""
        with DrawnFrom(self._generator):
            logits = deepest(functional_call(self._module.train(), self._state, (x,)), 2)
        value = loss(logits, rows).mean()
        gradients = torch.autograd.grad(value, self._learnt, allow_unused=self._running is None)
        if self._running is None:  # the first step tells which parameters the network uses
            self._learnt = [
                parameter for parameter, gradient in zip(self._learnt, gradients, strict=True) if gradient is not None
            ]
            self._running = self._how.begin(self._learnt)
        _set_rate(self._running, lr)
        self._running.step(self._learnt, [gradient for gradient in gradients if gradient is not None])
        return float(value.detach())

    def judged(self, x: Tensor, loss: LossOf, rows: Tensor) -> float:
        """Mean loss on the samples at ``rows``, in evaluation."""
        logits = predicted(partial(functional_call, self._module.eval(), self._state), x[rows])
        return float(loss(logits, rows).mean())

    def copied(self) -> State:
        return {name: tensor.detach().clone() for name, tensor in self._state.items()}


def _drawn(count: int, how: Fit, generator: torch.Generator) -> Iterator[Tensor]:
    """Indices of each step's samples, int64 [B]."""
    epochs = range(how.epochs) if how.epochs else itertools.count()
    every = (rows for _ in epochs for rows in batches(count, how.batch_size, generator))
    return every if how.epochs else itertools.islice(every, how.steps)


def _others(count: int, rows: Tensor) -> Tensor:
    left = torch.ones(count, dtype=torch.bool)
    left[rows] = False
    return left.nonzero().flatten()


def _set_rate(running: Running, lr: float) -> None:
    if isinstance(running, AdamSteps):
        running.adam = replace(running.adam, lr=lr)
    else:
        running.sgd = replace(running.sgd, lr=lr)
