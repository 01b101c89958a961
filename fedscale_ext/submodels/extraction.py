"""The entries of a reference model that a submodel covers, and their extraction and insertion."""

import torch
from torch import Tensor

from fedscale_ext.core.model_spec import Axis, Layout
from fedscale_ext.core.types import Coverage, Entries, Index, IndexMap, State


def _axis_index(axis: Axis | None, index_map: IndexMap) -> Tensor | None:
    """Return the covered indices along an axis, int64 [entries]; None if the axis stays whole."""
    if axis is None or axis.group not in index_map:
        return None
    index = torch.as_tensor(index_map[axis.group], dtype=torch.int64)
    if axis.repeat == 1:
        return index
    return (index[:, None] * axis.repeat + torch.arange(axis.repeat)).flatten()  # [channels, repeat] -> [entries]


def coverage(layout: Layout, index_map: IndexMap) -> Coverage:
    """Return the entries that belong to a submodel's channels.

    Args:
        layout: Axes of the reference's tensors.
        index_map: Channels of each group that the submodel has; groups that it does not name stay whole.

    Returns:
        For each tensor the indices along each axis; None for a whole axis or tensor.

    Raises:
        ValueError: If the layout does not have a group, or a group names a channel twice.

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
    """Return the leading entries of the reference that a smaller model's tensors overlap (HeteroFL's crop).

    Args:
        reference: The larger state.
        state: The smaller state.

    Returns:
        The coverage of the tensors that both have.

    Raises:
        ValueError: If a tensor of ``state`` is larger than the reference's along an axis.

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
    """Return indices that broadcast to the outer product of an index per axis, for reading and writing.

    Args:
        index: For each axis the indices [entries]; None: all.
        shape: Shape of the tensor to index.

    Returns:
        For axis d of D, indices of shape [1, ..., entries, ..., 1] with D axes.

    """
    axes = [torch.arange(length) if axis is None else axis for axis, length in zip(index, shape, strict=True)]
    return tuple(
        axis.view([-1 if position == dim else 1 for dim in range(len(axes))]) for position, axis in enumerate(axes)
    )


def extract(state: State, layout: Layout, index_map: IndexMap) -> State:
    """Copy the submodel of some channels out of a state.

    Args:
        state: The reference's tensors by name.
        layout: Axes of its tensors.
        index_map: Channels of each group that the submodel has; other groups stay whole.

    Returns:
        The submodel's tensors, smaller along the axes of the named groups.

    Raises:
        ValueError: If the layout does not have a group, or a group names a channel twice.

    """
    covered = coverage(layout, index_map)
    result: State = {}
    for name, tensor in state.items():
        index = covered[name]
        result[name] = tensor.clone() if index is None else tensor[grid(tuple(index), tensor.shape)]
    return result


def insert(reference: State, state: State, covered: Coverage | None) -> State:
    """Copy the reference with a submodel's values in the covered entries.

    Args:
        reference: The reference's tensors by name.
        state: The submodel's tensors.
        covered: Entries of the reference that the submodel covers; None: all.

    Returns:
        The copy, in the reference's dtypes.

    """
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
