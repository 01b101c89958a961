"""Narrower versions of a model by a rate: which channels of each group they keep, and their specs.

The same rate for every channel group but those that data and task fix (``models.widths.FIXED``): HeteroFL, FjORD
(leading channels) and FedRolex (a window that rolls) differ in nothing else.
"""

import math
from collections.abc import Mapping
from functools import lru_cache

import torch

from fedscale_ext import models
from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.core.types import IndexMap
from fedscale_ext.models.counting import sizes
from fedscale_ext.models.registry import skeleton
from fedscale_ext.models.widths import FIXED

_ROUNDING = 1e-9  # 0.6 * 15 is a little above 9 in floating point, and 9 channels are meant


def widths_at(spec: ModelSpec, rate: float) -> dict[str, int]:
    """ceil(C rate) channels of each group of C, at least one; ``rate`` in (0, 1]."""
    return {
        group: max(1, math.ceil(width * rate - _ROUNDING))
        for group, width in models.group_widths(spec).items()
        if group not in FIXED
    }


def narrowed(spec: ModelSpec, rate: float) -> ModelSpec:
    """The spec with every group at ``rate``; the spec itself at rate 1. UserError where the family has no narrower
    ones: their groups are none, and what comes back would be the whole model."""
    if rate < 1:
        models.check_resizable(spec)
    return models.resized(spec, widths_at(spec, rate))


@lru_cache(maxsize=64)
def rate_of(spec: ModelSpec, parameters: float) -> float:
    """The rate in (0, 1] at which ``narrowed`` comes nearest to so many parameters."""
    models.check_resizable(spec)
    widths = [width for group, width in models.group_widths(spec).items() if group not in FIXED]
    rates = sorted({channels / width for width in widths for channels in range(1, width + 1)})
    low, high = 0, len(rates) - 1  # parameters grow with the rate
    while low < high:
        middle = (low + high) // 2
        if _parameters(spec, rates[middle]) < parameters:
            low = middle + 1
        else:
            high = middle
    near = rates[max(0, low - 1) : low + 1]
    return min(near, key=lambda rate: abs(_parameters(spec, rate) - parameters))


def _parameters(spec: ModelSpec, rate: float) -> int:
    return sizes(skeleton(narrowed(spec, rate)))[0]


def window(spec: ModelSpec, rate: float, start: int = 0) -> IndexMap:
    """``widths_at`` channels of each group from number (``start`` mod C) on, wrapping at its end C; the leading ones
    by default."""
    full = models.group_widths(spec)
    return {
        group: (torch.arange(width) + start % full[group]) % full[group]
        for group, width in widths_at(spec, rate).items()
    }


def leading(layout: Layout, widths: Mapping[str, int]) -> dict[str, tuple[slice, ...]]:
    """Slices per tensor that leave the first channels of each group: views that gradients flow through.

    ``tensor[slices]`` holds what ``extract`` copies by the index maps of these leading channels.
    """
    return {
        name: tuple(
            slice(widths[axis.group] * axis.repeat) if axis is not None and axis.group in widths else slice(None)
            for axis in axes
        )
        for name, axes in layout.items()
    }
