"""Dropout that draws its masks from a given generator: a client draws the same alone and in a cohort."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode


def mask(shape: Sequence[int], p: float, generator: torch.Generator, like: Tensor) -> Tensor:
    """Draw a dropout mask on the CPU.

    Args:
        shape: Its shape.
        p: Probability of a zero; other entries are 1 / (1 - p), and with 1 there are none.
        generator: The random stream.
        like: A tensor with the mask's dtype and device.

    """
    keep = torch.rand(*shape, generator=generator) >= p
    return keep.to(like.device).to(like.dtype) / (1.0 - p if p < 1.0 else 1.0)


class Dropout(nn.Module):
    """Dropout of features [B, F].

    Within :func:`drawing` it draws from one generator, elsewhere from torch's global one.
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
    """Let the module's :class:`Dropout` layers draw in turn from ``generator`` in the block."""
    layers = [part for part in module.modules() if isinstance(part, Dropout)]
    for layer in layers:
        layer.generator = generator
    try:
        yield
    finally:
        for layer in layers:
            layer.generator = None


class DrawnFrom(TorchFunctionMode):
    """A block in which dropout and dropped paths of any network draw from ``generator``, in the order of their calls.

    The server uses it, whose networks learn in threads. They may be torchvision's, whose layers draw from torch's one
    generator of the process. It affects the current thread only, and only ``functional.dropout`` and ``bernoulli_``.
    Clients use :func:`drawing`, which intercepts no calls but supports this package's layers only.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Redirect the draws among the calls of torch; other calls are unchanged."""
        if func is functional.dropout:
            return self._dropped(*args, **(kwargs or {}))
        if func is Tensor.bernoulli_:
            return self._bernoulli(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _bernoulli(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        if x.device == self._generator.device:
            return x.bernoulli_(*args, **{"generator": self._generator, **options})
        drawn = torch.empty(x.shape, dtype=x.dtype, device=self._generator.device)
        return x.copy_(drawn.bernoulli_(*args, **{"generator": self._generator, **options}))

    def _dropped(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return x * mask(x.shape, p, self._generator, x) if training and p > 0 else x
