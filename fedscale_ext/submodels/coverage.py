"""Which entries of a reference model a submodel holds, and moving them out and back in."""

import torch
from torch import Tensor

from fedscale_ext.core.model_spec import Axis, Layout
from fedscale_ext.core.types import Coverage, Entries, Index, IndexMap, State


def _axis_index(axis: Axis | None, index_map: IndexMap) -> Tensor | None:
    if axis is None or axis.group not in index_map:
        return None
    index = torch.as_tensor(index_map[axis.group], dtype=torch.int64)
    return index if axis.repeat == 1 else (index[:, None] * axis.repeat + torch.arange(axis.repeat)).flatten()


def coverage(layout: Layout, index_map: IndexMap) -> Coverage:
    """The entries that belong to the channels ``index_map`` keeps; groups it does not name stay whole.

    ValueError for a group that the layout does not have or that names a channel twice.
    """
    groups = {axis.group for axes in layout.values() for axis in axes if axis is not None}
    for group, index in index_map.items():
        if group not in groups:
            raise ValueError(f"the layout has no group {group!r}")
        if len(torch.unique(torch.as_tensor(index))) != len(index):
            raise ValueError(f"group {group!r} names a channel twice")
    covered: dict[str, Entries] = {}
    for name, axes in layout.items():
        indices = tuple(_axis_index(axis, index_map) for axis in axes)
        covered[name] = None if all(index is None for index in indices) else indices
    return covered


def prefix(reference: State, state: State) -> Coverage:
    """The leading entries that a smaller model's tensors overlap with the reference's (HeteroFL's crop).

    Tensors that only one of the two has are not covered. ValueError where ``state`` is the larger
    along some axis.
    """
    covered: dict[str, Entries] = {}
    for name in reference.keys() & state.keys():
        target, shape = reference[name].shape, state[name].shape
        if len(target) != len(shape) or any(small > large for small, large in zip(shape, target, strict=True)):
            raise ValueError(f"{name} of shape {tuple(shape)} is no prefix of {tuple(target)}")
        whole = target == shape
        covered[name] = None if whole else tuple(torch.arange(length) for length in shape)
    return covered


def grid(index: Index, shape: torch.Size) -> tuple[Tensor, ...]:
    """Indices that broadcast to the outer product of an index per axis, for reading and writing."""
    axes = [torch.arange(length) if axis is None else axis for axis, length in zip(index, shape, strict=True)]
    return tuple(
        axis.view([-1 if position == dim else 1 for dim in range(len(axes))]) for position, axis in enumerate(axes)
    )


def extract(state: State, layout: Layout, index_map: IndexMap) -> State:
    """The submodel of the channels that ``index_map`` keeps (a copy)."""
    covered = coverage(layout, index_map)
    result: State = {}
    for name, tensor in state.items():
        index = covered[name]
        result[name] = tensor.clone() if index is None else tensor[grid(tuple(index), tensor.shape)]
    return result


def insert(reference: State, state: State, covered: Coverage | None) -> State:
    """A copy of the reference in which the covered entries have the submodel's values (None: all)."""
    result = {name: tensor.clone() for name, tensor in reference.items()}
    for name, tensor in result.items():
        if covered is not None and name not in covered:
            continue
        entries = None if covered is None else covered[name]
        value = state[name].to(tensor.dtype)
        if entries is None:
            tensor.copy_(value)
        elif isinstance(entries, Tensor):
            tensor[entries] = value[entries]
        else:
            tensor[grid(entries, tensor.shape)] = value
    return result
