"""Narrower versions of a model by a rate: the channels of each group that they have, and their specs.

Every channel group has the same rate, except those that data and task fix (``models.resizing.FIXED``). HeteroFL and
FjORD use the leading channels, FedRolex a rolling window. They differ in nothing else here.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping

import torch

from fedscale_ext import models
from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.core.parts import part_of
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.core.types import IndexMap
from fedscale_ext.models.counting import sizes
from fedscale_ext.models.registry import skeleton
from fedscale_ext.models.resizing import FIXED


def widths_at(spec: ModelSpec, rate: float) -> dict[str, int]:
    """Return ceil(C rate) for each group of C channels, at least one; ``rate`` in (0, 1]."""
    return {
        group: max(1, math.ceil(part_of(rate, width)))
        for group, width in models.group_widths(spec).items()
        if group not in FIXED
    }


def narrowed(spec: ModelSpec, rate: float) -> ModelSpec:
    """Return the spec with every group at ``rate``; the spec itself at rate 1.

    Args:
        spec: The whole model.
        rate: Share of the channels, in (0, 1].

    Raises:
        UserError: If the family cannot be narrowed. Its layout may name no group, so that the result would be the whole
            model.

    """
    if rate < 1:
        models.check_resizable(spec)
    return models.resized(spec, widths_at(spec, rate))


@cached_by_spec(64)
def rate_of(spec: ModelSpec, parameters: float) -> float:
    """Return the rate in (0, 1] at which ``narrowed`` comes nearest to this number of parameters."""
    models.check_resizable(spec)
    widths = [width for group, width in models.group_widths(spec).items() if group not in FIXED]
    rates = sorted({channels / width for width in widths for channels in range(1, width + 1)})
    # parameters grow with the rate
    first = bisect_left(rates, parameters, hi=len(rates) - 1, key=lambda rate: _parameters(spec, rate))
    near = rates[max(0, first - 1) : first + 1]
    return min(near, key=lambda rate: abs(_parameters(spec, rate) - parameters))


def _parameters(spec: ModelSpec, rate: float) -> int:
    return sizes(skeleton(narrowed(spec, rate)))[0]


def window(spec: ModelSpec, rate: float, start: int = 0) -> IndexMap:
    """Return a window of ``widths_at`` channels of each group.

    Args:
        spec: The whole model.
        rate: Share of the channels, in (0, 1].
        start: First channel, modulo the number C of the group's channels; the window wraps at C.

    Returns:
        Channel numbers of each group, int64 [channels].

    """
    full = models.group_widths(spec)
    return {
        group: (torch.arange(width) + start % full[group]) % full[group]
        for group, width in widths_at(spec, rate).items()
    }


def leading(layout: Layout, widths: Mapping[str, int]) -> dict[str, tuple[slice, ...]]:
    """Return slices per tensor that select the leading channels of each group.

    ``tensor[slices]`` has the values that ``extract`` copies for these channels. It is a view that gradients flow
    through.

    Args:
        layout: Axes of the tensors.
        widths: Number of channels of each group; groups that it does not name stay whole.

    """
    return {
        name: tuple(
            slice(widths[axis.group] * axis.repeat) if axis is not None and axis.group in widths else slice(None)
            for axis in axes
        )
        for name, axes in layout.items()
    }
