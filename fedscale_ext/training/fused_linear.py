"""Large linear layers that take their SGD step while their gradient is computed, block by block.

Such a layer is bound by memory: its weights are read for the input's gradient, its own gradient is
written and read again, its weights read and written. Here a block of rows does all of it while it lies in
the processor's cache, and the gradient as a whole never exists. The arithmetic is that of :class:`Sgd`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.training.sgd import Sgd, Steps

LARGE = 1 << 20  # entries of a weight from which on it is worth it
_BLOCK = 1 << 17  # entries of a block: half a MiB of weights, and as much of momentum


@dataclass
class FusedWeight:
    """A layer's weight with what its step needs; ``velocity`` and ``origin`` as in :mod:`sgd`."""

    sgd: Sgd
    weight: Tensor
    velocity: Tensor | None
    origin: Tensor | None

    def step(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Step for the layer's input [B, in] and output gradient [B, out]; the input's gradient [B, in]."""
        result = torch.zeros_like(x)
        rows = max(1, _BLOCK // self.weight.shape[1])
        for begin in range(0, len(self.weight), rows):
            block = slice(begin, begin + rows)
            weight, own = self.weight[block], gradient[:, block]
            result.addmm_(own, weight)  # by the weights before the step
            self._step(block, weight, own.t(), x)
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
    """How often each large linear layer is called in the block.

    A call that cannot step by itself counts as more than one: on more than a matrix, or with neither an
    input nor a bias that takes a gradient, so that no backward pass would reach it.
    """
    calls: dict[nn.Linear, int] = {}

    def count(layer: nn.Module, inputs: Sequence[Tensor]) -> None:
        assert isinstance(layer, nn.Linear)
        reached = inputs[0].requires_grad or (layer.bias is not None and layer.bias.requires_grad)
        calls[layer] = calls.get(layer, 0) + (1 if inputs[0].dim() == 2 and reached else 2)

    large = [part for part in model.modules() if type(part) is nn.Linear and part.weight.numel() >= LARGE]
    hooks = [layer.register_forward_pre_hook(count) for layer in large]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def split(
    parameters: list[Tensor], steps: Steps, calls: dict[nn.Linear, int]
) -> tuple[list[Tensor], Steps, dict[nn.Linear, FusedWeight]]:
    """Parameters that step together, their optimiser, and the layers whose weights step by themselves.

    The latter are called once in a step, and no norm of all gradients must be known first (clipping).
    """
    uses: dict[int, int] = {}  # of a weight, which several layers may share
    for called, count in calls.items():
        uses[id(called.weight)] = uses.get(id(called.weight), 0) + count
    unclipped = steps.pull.clip_norm is None
    once = {id(one.weight): one for one in calls if uses[id(one.weight)] == 1 and unclipped}
    rest: list[int] = []
    layers: dict[nn.Linear, FusedWeight] = {}
    for place, parameter in enumerate(parameters):
        layer = once.get(id(parameter))
        if layer is None:
            rest.append(place)
            continue
        velocity = steps.velocity[place] if steps.velocity else None
        origin = steps.pull.origin[place] if steps.pull.origin else None
        layers[layer] = FusedWeight(steps.sgd, parameter.detach(), velocity, origin)
    left = Steps(
        steps.sgd,
        replace(steps.pull, origin=[steps.pull.origin[place] for place in rest if steps.pull.origin]),
        [steps.velocity[place] for place in rest if steps.velocity],
    )
    return [parameters[place] for place in rest], left, layers


@contextmanager
def fused(layers: dict[nn.Linear, FusedWeight]) -> Iterator[None]:
    """Let layers step by themselves in the backward passes of the block; each must be called once in a step."""
    for layer, weight in layers.items():
        layer.forward = partial(_apply, layer, weight)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # the class's own again
