"""Active channels of a client's model: bool [C] by channel group of the model's layout, or [clients, C] of many.

The active entries of a tensor are the outer product of the active channels along its axes, buffers included. With zeros
for all other parameters, the model computes the function of the smaller network that ``submodels.extract`` would cut
out. A channel whose BatchNorm has neither weight nor bias is zero, and so is what other layers read of it.
"""

from collections.abc import Callable, Mapping
from functools import reduce

import torch
from torch import Tensor

from fedscale_ext.core.model_spec import Axis, Layout
from fedscale_ext.method import ModelSpec, State, models
from fedscale_ext.models.resizing import FIXED

Active = dict[str, Tensor]
Measure = Callable[[Tensor], Tensor]


def whole(spec: ModelSpec) -> Active:
    """All channels of every group but those that data and task fix."""
    widths = models.group_widths(spec).items()
    return {group: torch.ones(width, dtype=torch.bool) for group, width in widths if group not in FIXED}


def widths(active: Mapping[str, Tensor]) -> dict[str, int]:
    """Number of active channels of each group."""
    return {group: int(one.sum()) for group, one in active.items()}


def masks(layout: Layout, active: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> State:
    """Masks of tensors: which of their entries lie on active channels.

    Args:
        layout: Axes of each tensor.
        active: Active channels, bool [C] by group.
        tensors: Tensors by name.

    Returns:
        bool in the shape of each tensor.

    """
    return {name: _along(layout[name], active, tensor, torch.logical_and) for name, tensor in tensors.items()}


def gated(layout: Layout, gates: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> State:
    """Multiply the columns that read each channel by its gate, as if the channel itself were scaled.

    Args:
        layout: Axes of each tensor.
        gates: Gates, float [C] by group.
        tensors: Tensors by name.

    Returns:
        The gated tensors by name.

    """
    only_in = {name: tuple(a if a and a.role == "in" else None for a in layout[name]) for name in tensors}
    return {name: _scaled(only_in[name], gates, tensor) for name, tensor in tensors.items()}


def _scaled(axes: tuple[Axis | None, ...], gates: Mapping[str, Tensor], tensor: Tensor) -> Tensor:
    for vector in _vectors(axes, gates, tensor.dim(), tensor.device):
        tensor = tensor * vector
    return tensor


def _along(
    axes: tuple[Axis | None, ...],
    active: Mapping[str, Tensor],
    tensor: Tensor,
    join: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    every = torch.ones((1,) * tensor.dim(), dtype=torch.bool, device=tensor.device)
    return reduce(join, _vectors(axes, active, tensor.dim(), tensor.device), every).expand(tensor.shape).clone()


def _vectors(
    axes: tuple[Axis | None, ...], values: Mapping[str, Tensor], dims: int, device: torch.device
) -> list[Tensor]:
    """The values of each axis that has a group with values, in a shape that broadcasts over ``dims`` dimensions."""
    return [
        values[axis.group].to(device).repeat_interleave(axis.repeat).view([-1 if p == dim else 1 for p in range(dims)])
        for dim, axis in enumerate(axes)
        if axis is not None and axis.group in values
    ]


def strength(layout: Layout, tensors: Mapping[str, Tensor], measure: Measure = torch.abs) -> dict[str, Tensor]:
    """Strength of each channel: the sum of ``measure`` over the weights (two axes or more) that make it.

    Args:
        layout: Axes of each tensor.
        tensors: Tensors by name.
        measure: Elementwise measure of a weight.

    Returns:
        float64 [C] by group.

    """
    sums: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for dim, axis in enumerate(layout[name] if tensor.dim() > 1 else ()):
            if axis is None or axis.role != "out" or axis.group in FIXED:
                continue
            rows = measure(tensor.detach().double()).movedim(dim, 0).flatten(1).sum(1)
            rows = rows.view(-1, axis.repeat).sum(1)
            sums[axis.group] = sums[axis.group] + rows if axis.group in sums else rows
    return sums


def strongest(
    scores: Mapping[str, Tensor], counts: Mapping[str, int], among: Mapping[str, Tensor] | None = None
) -> Active:
    """The channels with the highest scores, of equal ones the first.

    Args:
        scores: Score of each channel, [C] by group.
        counts: Number of channels to choose, by group.
        among: Channels to choose from, bool [C] by group; all by default.

    Returns:
        bool [C] by group.

    """
    active = {}
    for group, score in scores.items():
        if among is not None:
            score = score.masked_fill(~among[group].to(score.device), -torch.inf)
        order = score.argsort(descending=True, stable=True)[: counts[group]]
        active[group] = torch.zeros(len(score), dtype=torch.bool).index_fill(0, order.cpu(), True)
    return active


def held_bytes(layout: Layout, active: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Bytes of the tensors that each client holds, and the part that no other client holds.

    Args:
        layout: Axes of each tensor.
        active: Active channels of the clients, bool [clients, C] by group.
        tensors: Tensors of the whole model by name.

    Returns:
        int64 [clients] each.

    """
    clients = len(next(iter(active.values())))
    every, alone = (torch.zeros(clients, dtype=torch.float64) for _ in range(2))
    for name, tensor in tensors.items():
        axes = [axis for axis in layout[name] if axis is not None and axis.group in active]
        along = [active[axis.group].double().repeat_interleave(axis.repeat, dim=1) for axis in axes]
        along += [torch.ones(clients, 1, dtype=torch.float64)] * (2 - len(along))
        rows, columns = along
        size = tensor.nbytes / max(1, rows.shape[1] * columns.shape[1])  # of all that hangs on a pair of channels
        once = (rows.T @ columns == 1).double()  # who keeps both, counted over the clients
        every += size * rows.sum(1) * columns.sum(1)
        alone += size * ((rows @ once) * columns).sum(1)
    return every.round().long(), alone.round().long()
