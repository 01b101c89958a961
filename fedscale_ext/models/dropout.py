"""Dropout whose masks come from streams that it is given: a client draws the same ones alone and in a cohort."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode


def mask(shape: Sequence[int], p: float, generator: torch.Generator, like: Tensor) -> Tensor:
    """Zeros with probability ``p`` and 1 / (1 - p) elsewhere, drawn on the CPU, of the dtype and device of ``like``."""
    keep = torch.rand(*shape, generator=generator) >= p
    return keep.to(like.device).to(like.dtype) / (1.0 - p)


class Dropout(nn.Module):
    """Features [B, F] without some of their entries in training; the others grow to keep the mean.

    Within :func:`drawing`, one generator says which; elsewhere torch's global one.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if self.generator is None or not self.training:
            return functional.dropout(x, self.p, self.training)
        return x * mask(x.shape, self.p, self.generator, x)


@contextmanager
def drawing(module: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Let the module's :class:`Dropout` layers draw from ``generator``, one behind another, in the block."""
    layers = [part for part in module.modules() if isinstance(part, Dropout)]
    for layer in layers:
        layer.generator = generator
    try:
        yield
    finally:
        for layer in layers:
            layer.generator = None


class DrawnFrom(TorchFunctionMode):
    """Within it, dropout and dropped paths of any network draw from ``generator``, in the order of their calls.

    For the server, whose networks learn in threads and may be torchvision's, with layers that draw from torch's one
    generator of the process; :func:`drawing`, for clients, catches no calls but knows our own layers only. Of the
    current thread only. What draws by other means than ``functional.dropout`` and ``bernoulli_`` is not seen.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Any call of torch; all others stay what they are."""
        if func is functional.dropout:
            return self._dropped(*args, **(kwargs or {}))
        if func is Tensor.bernoulli_:
            return func(*args, **{"generator": self._generator, **(kwargs or {})})
        return func(*args, **(kwargs or {}))

    def _dropped(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return x * mask(x.shape, p, self._generator, x) if training and p > 0 else x
