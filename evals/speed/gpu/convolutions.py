"""Milliseconds of a cohort's convolution, forward and backward, by three ways to compute it.

Cohorts train a convolution of K clients as one in K groups. For few channels the libraries' kernels of grouped
convolutions may be slow; unfolding the maps and multiplying matrices per client is the same sum in another order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from evals.speed.cohorts import seconds
from evals.speed.gpu.measurements import Measurements, Setting

PART = "convolutions"
SIZES = ((8, 28), (16, 14), (32, 14))
"""Channels in and out, and the side of maps, of 3x3 convolutions: two of nasbench201_base, and one of a grown model."""
CLIENTS = (25, 100)
BATCH = 10
PRECISIONS = ("float32", "bfloat16")
_NEEDED_S, _TIMES = 2.0, 50


def grouped(x: Tensor, weight: Tensor) -> Tensor:
    """Convolve as cohorts do: x [B, K * C, H, W], weight [K, O, C, 3, 3]; returns [B, K * O, H, W]."""
    return functional.conv2d(x, weight.flatten(0, 1), padding=1, groups=len(weight))


def unfolded(x: Tensor, weight: Tensor) -> Tensor:
    """Compute what :func:`grouped` does by a matrix product for each client and row of the batch."""
    clients, outputs, channels = weight.shape[:3]
    batch, _, height, width = x.shape
    columns = functional.unfold(x.reshape(batch * clients, channels, height, width), 3, padding=1)
    product = weight.flatten(2) @ columns.view(batch, clients, channels * 9, height * width)
    return product.reshape(batch, clients * outputs, height, width)


def channels_last(x: Tensor, weight: Tensor) -> Tensor:
    """Compute :func:`grouped` with maps and weights whose channels lie beside one another."""
    flat = weight.flatten(0, 1).contiguous(memory_format=torch.channels_last)
    maps = x.contiguous(memory_format=torch.channels_last)
    return functional.conv2d(maps, flat, padding=1, groups=len(weight))


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "grouped": grouped,
    "grouped, channels last": channels_last,
    "unfolded": unfolded,
}


def run(measurements: Measurements) -> None:
    """Measure all ways, sizes and precisions for which the time suffices."""
    setting = measurements.setting
    for precision in PRECISIONS:
        for channels, side in SIZES[:1] if setting.small else SIZES:
            for clients in (2,) if setting.small else CLIENTS:
                for way in WAYS:
                    work = partial(_milliseconds, setting, way, precision, channels, side, clients)
                    measurements.measure(
                        PART, 0.0 if setting.small else _NEEDED_S, work,
                        row=way, precision=precision, channels=channels, side=side, clients=clients,
                    )  # fmt: skip


def _milliseconds(setting: Setting, way: str, precision: str, channels: int, side: int, clients: int) -> dict[str, Any]:
    """Best milliseconds of a forward and backward pass."""
    kind = getattr(torch, precision)
    x, weight = tensors(clients, channels, side, setting.device, kind)
    above = torch.ones_like(grouped(x, weight))

    def passes() -> None:
        for _ in range(1 if setting.small else _TIMES):
            torch.autograd.grad(WAYS[way](x, weight), (x, weight), above)

    return {"ms": 1e3 * min(seconds(passes, setting.device, 3)) / (1 if setting.small else _TIMES)}


def tensors(clients: int, channels: int, side: int, device: torch.device, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Random maps [B, K * C, side, side] and weights [K, C, C, 3, 3] of which gradients are taken."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, clients * channels, side, side, generator=generator)
    weight = torch.randn(clients, channels, channels, 3, 3, generator=generator)
    return x.to(device, kind).requires_grad_(), weight.to(device, kind).requires_grad_()
