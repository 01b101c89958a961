"""A trial of a cohort form: whether one training step of two clients is that of each client alone.

Tracing and vmap see a network's operations, but not all that its code does around them.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from fedscale_ext.core.types import State
from fedscale_ext.models.layers.dropout import drawing
from fedscale_ext.models.random_input import random_input

if TYPE_CHECKING:
    from fedscale_ext.models.stacked.network import Mapped, Stacked

STEPS = "num_batches_tracked"  # BatchNorm's only integer buffer: it counts training steps
_CLIENTS, _BATCH = 2, 2
_NOISE = 1021  # random numbers, repeated for large tensors, which saves time; a prime, so that channels differ
# relative to the largest entry; layers that divide by a small spread enlarge it
_ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-2}


class _Step(NamedTuple):
    """What a step gives: output, gradient of each parameter (None: unused), and the other floating tensors after it."""

    output: Tensor
    gradients: list[Tensor | None]
    others: list[Tensor]


def computes_alike(network: "Stacked | Mapped", module: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Return whether a cohort's outputs, gradients and buffers are those of its clients alone, up to rounding.

    Args:
        network: The cohort form.
        module: The network of one client in training mode, best in float64; its tensors are overwritten.
        input_shape: Shape of a sample, (C, H, W).

    """
    generator = torch.Generator().manual_seed(0)
    tensors = module.state_dict(keep_vars=True)
    trainable = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    starts = [{name: _start(tensor, generator) for name, tensor in tensors.items()} for _ in range(_CLIENTS)]
    like = next(module.parameters())
    x = random_input(_BATCH, _CLIENTS, *input_shape, generator=generator, dtype=like.dtype).to(like.device)
    for name, tensor in tensors.items():
        if name.endswith(STEPS):
            tensor.add_(1)  # a cohort does not have its clients' counts, so that what reads them differs
    together = _together(network, trainable, starts, x)  # first, as it raises for networks that vmap refuses
    alone = []
    for client, start in enumerate(starts):
        alone.append(_alone(module, trainable, start, x[:, client], client))
        counted = {name: start[name] + name.endswith(STEPS) for name in start if not start[name].is_floating_point()}
        after = module.state_dict()
        if any(not torch.equal(after[name], count) for name, count in counted.items()):
            return False  # a cohort counts the steps of all layers
    return all(_alike(one, other) for one, other in zip(alone, together, strict=True))


def _start(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Return a parameter near ``tensor``, without zeros that would hide what comes before or after it; else a copy."""
    if not (isinstance(tensor, nn.Parameter) and tensor.is_floating_point()):
        return tensor.detach().clone()
    count = tensor.numel()
    noise = torch.randn(_NOISE, dtype=tensor.dtype, generator=generator).repeat(-(-count // _NOISE))[:count]
    fan_in = tensor[0].numel() if tensor.dim() > 1 else 1
    return tensor.detach() + 0.1 * fan_in**-0.5 * noise.view(tensor.shape).to(tensor.device)


def _alone(module: nn.Module, trainable: list[str], start: State, x: Tensor, client: int) -> _Step:
    tensors = module.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(start[name])
    with drawing(module, torch.Generator().manual_seed(client)):
        output = module(x)
    gradients = torch.autograd.grad(_loss(output), [tensors[name] for name in trainable], allow_unused=True)
    after = module.state_dict()  # the network's code may have set another buffer
    others = [tensor.clone() for name, tensor in after.items() if _is_other(name, tensor, trainable)]
    return _Step(output.detach(), list(gradients), others)


def _together(network: "Stacked | Mapped", trainable: list[str], starts: list[State], x: Tensor) -> list[_Step]:
    floating = [name for name, tensor in starts[0].items() if tensor.is_floating_point()]
    tensors = {name: torch.stack([start[name] for start in starts]) for name in floating}
    parameters = [tensors[name].requires_grad_() for name in trainable]
    network.bind(tensors, _CLIENTS)
    drawing_together: Any = getattr(network, "drawing", nullcontext)  # a mapped network does not draw
    with drawing_together([torch.Generator().manual_seed(client) for client in range(_CLIENTS)]):
        outputs = network(x)
    loss = torch.stack([_loss(output) for output in outputs]).sum()
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    others = [tensor for name, tensor in tensors.items() if _is_other(name, tensor, trainable)]
    return [
        _Step(
            outputs[client].detach(),
            [None if stack is None else stack[client] for stack in gradients],
            [stack[client] for stack in others],
        )
        for client in range(_CLIENTS)
    ]


def _is_other(name: str, tensor: Tensor, trainable: list[str]) -> bool:
    return tensor.is_floating_point() and name not in trainable


def _loss(output: Tensor) -> Tensor:
    """Return a sum in which every entry of an output has a weight of its own."""
    weights = torch.arange(output.numel(), dtype=output.dtype, device=output.device).cos()
    return (output.flatten() * weights).sum()


def _alike(one: _Step, other: _Step) -> bool:
    gradients = list(zip(one.gradients, other.gradients, strict=True))
    if any((a is None) != (b is None) for a, b in gradients):
        return False  # only one of them uses the parameter
    used = [(a, b) for a, b in gradients if a is not None and b is not None]
    groups = [[(one.output, other.output)], used, list(zip(one.others, other.others, strict=True))]
    return all(_close(pairs) for pairs in groups)


def _close(pairs: list[tuple[Tensor, Tensor]]) -> bool:
    """Whether all pairs are equal up to rounding, beside the largest entry of all: some gradients are mere rounding."""
    if any(a.shape != b.shape for a, b in pairs):
        return False
    largest = max((_largest(a) for a, _ in pairs), default=0.0)
    return all(_largest(a - b) <= _ROUNDING[a.dtype] * largest for a, b in pairs)  # False if there is NaN


def _largest(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, torch.inf)) if tensor.numel() else 0.0
