"""Large linear layers that take their SGD step while their gradient is computed, block by block.

Such a layer is bound by memory. Usually its weights are read for the input's gradient, its weight gradient is written
and read again, and its weights are read and written. Here a block of rows does all of it while it lies in the
processor's cache, and the whole gradient never exists. The arithmetic is that of :class:`Sgd`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.models.layers.hooks import hooked
from fedscale_ext.training.optimizers.sgd import Sgd, Steps

LARGE = 1 << 20  # smallest number of entries of a weight for which fusing pays
_BLOCK = 1 << 17  # entries of a block: half a MiB of weights, and as much of momentum


@dataclass
class FusedWeight:
    """A layer's weight [out, in] with its optimizer, momentum and origin of the prox term (``optimizers/sgd.py``)."""

    sgd: Sgd
    weight: Tensor
    velocity: Tensor | None
    origin: Tensor | None

    def step(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Take the layer's SGD step and return the gradient of its input.

        Args:
            x: Input [B, in] of the forward pass.
            gradient: Gradient [B, out] of the output.

        Returns:
            Gradient [B, in] of the input, by the weights before the step.

        """
        result = torch.zeros_like(x)
        rows = max(1, _BLOCK // self.weight.shape[1])
        for begin in range(0, len(self.weight), rows):
            block = slice(begin, begin + rows)
            weight, gradient_block = self.weight[block], gradient[:, block]
            result.addmm_(gradient_block, weight)  # by the weights before the step
            self._step(block, weight, gradient_block.t(), x)
        return result

    def _step(self, block: slice, weight: Tensor, gradient: Tensor, x: Tensor) -> None:
        sgd = self.sgd
        away = None if self.origin is None else weight - self.origin[block]
        if self.velocity is None:
            if sgd.weight_decay:
                weight.mul_(1.0 - sgd.lr * sgd.weight_decay)
            weight.addmm_(gradient, x, alpha=-sgd.lr)
            if away is not None:
                weight.add_(away, alpha=-sgd.lr * sgd.mu)
            return
        velocity = self.velocity[block]
        velocity.addmm_(gradient, x, beta=sgd.momentum)
        if away is not None:
            velocity.add_(away, alpha=sgd.mu)
        if sgd.weight_decay:
            velocity.add_(weight, alpha=sgd.weight_decay)
        weight.add_(velocity, alpha=-sgd.lr)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, fused: FusedWeight) -> Tensor:
        ctx.save_for_backward(x)
        ctx.fused, ctx.biased = fused, bias is not None
        return functional.linear(x, fused.weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (x,), (gradient,) = ctx.saved_tensors, gradients
        return ctx.fused.step(x, gradient), gradient.sum(0) if ctx.biased else None, None


def _apply(layer: nn.Linear, weight: FusedWeight, x: Tensor) -> Tensor:
    output: Tensor = _Fused.apply(x, layer.bias, weight)
    return output


@contextmanager
def counted_calls(model: nn.Module) -> Iterator[dict[nn.Linear, int]]:
    """Count how often each large linear layer is called in the block.

    A call that cannot be fused counts as more than one. This is a call on an input that is no matrix, or with neither
    an input nor a bias that requires a gradient, since no backward pass would reach it.
    """
    calls: dict[nn.Linear, int] = {}

    def count(layer: nn.Module, inputs: Sequence[Tensor]) -> None:
        assert isinstance(layer, nn.Linear)
        reached = inputs[0].requires_grad or (layer.bias is not None and layer.bias.requires_grad)
        calls[layer] = calls.get(layer, 0) + (1 if inputs[0].dim() == 2 and reached else 2)

    large = [part for part in model.modules() if type(part) is nn.Linear and part.weight.numel() >= LARGE]
    with hooked(layer.register_forward_pre_hook(count) for layer in large):
        yield calls


def count_further_uses(calls: dict[nn.Linear, int], loss: Tensor) -> None:
    """Count what else than calls of its layer keeps a large weight from stepping by itself: other uses, and hooks.

    Args:
        calls: How often each large linear layer was called; counts of others' weights rise.
        loss: The step's loss, before its backward pass.

    """
    uses = dict.fromkeys([id(layer.weight) for layer in calls], 0)
    seen, waiting = set(), [loss.grad_fn]
    while waiting:
        for following, _ in () if (node := waiting.pop()) is None else node.next_functions:
            weight = id(getattr(following, "variable", None))  # only the nodes of a graph's leaves have one
            if weight in uses:
                uses[weight] += 1
            elif following not in seen:
                seen.add(following)
                waiting.append(following)
    for layer in calls:
        calls[layer] += uses[id(layer.weight)] > 1 or bool(layer.weight._backward_hooks)


def split(
    parameters: list[Tensor], steps: Steps, calls: dict[nn.Linear, int]
) -> tuple[list[Tensor], Steps, dict[nn.Linear, FusedWeight]]:
    """Split the parameters into those that step together and the layers whose weights step by themselves.

    A layer steps by itself if it is called once in a step, its weight has no other use and no hook, and gradients are
    not clipped, since clipping needs the norm of all gradients first.

    Args:
        parameters: All trained parameters.
        steps: Their optimizer.
        calls: How often each large linear layer is called in a step, or more (:func:`count_further_uses`).

    Returns:
        The parameters that step together, their optimizer, and the other layers with their weights.

    """
    uses: dict[int, int] = {}  # calls of a weight, which several layers may share
    for called, count in calls.items():
        uses[id(called.weight)] = uses.get(id(called.weight), 0) + count
    unclipped = steps.pull.clip_norm is None
    once = {id(one.weight): one for one in calls if uses[id(one.weight)] == 1 and unclipped}
    rest: list[int] = []
    layers: dict[nn.Linear, FusedWeight] = {}
    for index, parameter in enumerate(parameters):
        layer = once.get(id(parameter))
        if layer is None:
            rest.append(index)
            continue
        velocity = steps.velocity[index] if steps.velocity else None
        origin = steps.pull.origin[index] if steps.pull.origin else None
        layers[layer] = FusedWeight(steps.sgd, parameter.detach(), velocity, origin)
    left = Steps(
        steps.sgd,
        replace(steps.pull, origin=[steps.pull.origin[index] for index in rest if steps.pull.origin]),
        [steps.velocity[index] for index in rest if steps.velocity],
    )
    return [parameters[index] for index in rest], left, layers


@contextmanager
def fused(layers: dict[nn.Linear, FusedWeight]) -> Iterator[None]:
    """Let layers step by themselves in the backward passes of the block; each must be called once per step."""
    for layer, weight in layers.items():
        layer.forward = partial(_apply, layer, weight)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # restores the method of the class
