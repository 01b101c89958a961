"""What operations do with the channels of their operands, by the names that ``torch.export`` gives them.

A rule returns the channels along the dimensions of the result; None means that the rule does not cover the case.
"""

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from fedscale_ext.models.channels.sets import Dim, Dims, fix, join

if TYPE_CHECKING:
    from fedscale_ext.models.channels.layout import Graph

Rule = Callable[["Graph", Node], Dims | None]


def shape(node: Any) -> tuple[int, ...]:
    """Return the shape of a value; () for what is no tensor."""
    return tuple(getattr(node.meta.get("val"), "shape", ())) if isinstance(node, Node) else ()


def rule_of(node: Node) -> Rule | None:
    """Return the rule of an operation; None where there is none."""
    if torch.Tag.pointwise in getattr(node.target, "tags", ()):
        return _pointwise
    return _part if node.target is operator.getitem else _RULES.get(str(node.target))


def _argument(node: Node, position: int, name: str, default: Any = None) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


# layers with weights


def _convolution(graph: "Graph", node: Node) -> Dims | None:
    x, weight, bias = node.args[0], node.args[1], _argument(node, 2, "bias")
    groups = _argument(node, 6, "groups", 1)
    source, lengths = graph.dims(x)[1], shape(weight)
    if groups == 1:
        graph.run_along(weight, 1, source, "in")
        made = graph.make(weight)
    elif lengths[1] == 1 and source is not None and source.repeat == 1:  # depthwise, or some outputs of each channel
        made = Dim(source.channels, lengths[0] // groups)
        graph.run_along(weight, 0, made)
    else:
        return None
    graph.run_along(bias, 0, made)
    return (None, made, *(None,) * (len(shape(node)) - 2))


def _linear(graph: "Graph", node: Node) -> Dims:
    x, weight, bias = node.args[0], node.args[1], _argument(node, 2, "bias")
    *before, source = graph.dims(x)
    graph.run_along(weight, 1, source, "in")
    made = graph.make(weight)
    graph.run_along(bias, 0, made)
    return (*before, made)


def _embedding(graph: "Graph", node: Node) -> Dims:
    return (*graph.dims(node.args[1]), graph.make(node.args[0], 1))


def _normalised(graph: "Graph", node: Node, axis: int, vectors: tuple[Any, ...]) -> Dims:
    """Vectors of a normalisation run over the channels along a dimension."""
    dims = graph.dims(node.args[0])
    for vector in vectors:
        graph.run_along(vector, 0, dims[axis])
    return dims


def _batch_norm(graph: "Graph", node: Node) -> Dims:
    return _normalised(graph, node, 1, node.args[1:5])


def _prelu(graph: "Graph", node: Node) -> Dims:
    slope_per_channel = shape(node.args[1]) == shape(node)[1:2]  # else one slope for all
    return _normalised(graph, node, 1, node.args[1:2] if slope_per_channel else ())


def _layer_norm(graph: "Graph", node: Node) -> Dims | None:
    if len(node.args[1]) != 1:  # type: ignore[arg-type]
        return None
    return _normalised(graph, node, -1, (_argument(node, 2, "weight"), _argument(node, 3, "bias")))


def _group_norm(graph: "Graph", node: Node) -> Dims | None:
    if node.args[1] != 1:  # groups would have to keep their size
        return None
    return _normalised(graph, node, 1, (_argument(node, 2, "weight"), _argument(node, 3, "bias")))


# operations entry by entry


def _pointwise(graph: "Graph", node: Node) -> Dims:
    """Entries that meet belong to the same channel; a dimension of length 1 meets all entries of the other operand."""
    size = shape(node)
    result: list[Dim | None] = [None] * len(size)
    met = [False] * len(size)
    for value in node.all_input_nodes:
        lengths, dims = shape(value), graph.dims(value)
        for axis in range(-len(lengths), 0):
            if lengths[axis] != size[axis]:
                fix(dims[axis])
            else:
                result[axis] = join(result[axis], dims[axis]) if met[axis] else dims[axis]
                met[axis] = True
    return tuple(result)


def _same(graph: "Graph", node: Node) -> Dims:
    """As many entries as before, each where it was."""
    return graph.dims(node.args[0])


def _pooled(graph: "Graph", node: Node) -> Dims:
    """The last two dimensions have other lengths."""
    dims = graph.dims(node.args[0])
    fix(*dims[-2:])
    return (*dims[:-2], None, None)


def _padded(graph: "Graph", node: Node) -> Dims:
    """Padded dimensions have other entries, even where they are as long as before; maps are padded in the last two."""
    dims = graph.dims(node.args[0])
    pads: Any = node.args[1]  # two numbers for each dimension, from the last one on
    from_last = {axis for axis in range(len(pads) // 2) if any(pads[2 * axis : 2 * axis + 2])}
    padded = {len(dims) - 1 - axis for axis in from_last | {0, 1}}
    fix(*(dim for axis, dim in enumerate(dims) if axis in padded))
    return tuple(None if axis in padded else dim for axis, dim in enumerate(dims))


def _reduced(graph: "Graph", node: Node) -> Dims:
    """A mean, sum or maximum over some dimensions mixes their channels."""
    dims, over = graph.dims(node.args[0]), _argument(node, 1, "dim")
    over = range(len(dims)) if over is None else [over] if isinstance(over, int) else over
    axes = {axis % len(dims) for axis in over}
    fix(*(dims[axis] for axis in axes))
    keeps_dims = len(shape(node)) == len(dims)
    return tuple(None if axis in axes else dim for axis, dim in enumerate(dims) if keeps_dims or axis not in axes)


# operations that look at one dimension, whose channels they fix


def _along(graph: "Graph", node: Node, axis: int, stays: bool) -> Dims:
    dims = list(graph.dims(node.args[0]))
    fix(dims[axis])
    dims[axis : axis + 1 or None] = [None] if stays else []
    return tuple(dims)


def _mixed(graph: "Graph", node: Node) -> Dims:
    return _along(graph, node, _axis(node, 1), stays=True)


def _selected(graph: "Graph", node: Node) -> Dims:
    return _along(graph, node, _axis(node, 1), stays=False)


def _cut(graph: "Graph", node: Node) -> Dims:
    return _along(graph, node, _axis(node, 2), stays=True)


def _axis(node: Node, position: int) -> int:
    return int(_argument(node, position, "dim", 0)) % len(shape(node.args[0]))


def _part(graph: "Graph", node: Node) -> Dims:
    """One of the parts that a chunk, split or unbind gives."""
    dims = graph.values(node.args[0])
    return dims if len(dims) == len(shape(node)) else (None,) * len(shape(node))


def _concatenated(graph: "Graph", node: Node) -> Dims:
    """Channels along the dimension of torch.cat are fixed, those along the others go together."""
    axis = _argument(node, 1, "dim", 0) % len(shape(node))
    parts = [graph.dims(value) for value in node.args[0]]  # type: ignore[union-attr]
    result = list(parts[0])
    for dims in parts:
        fix(dims[axis])
        result = [join(one, other) for one, other in zip(result, dims, strict=True)]
    result[axis] = None
    return tuple(result)


def _stacked(graph: "Graph", node: Node) -> Dims:
    """torch.stack: a new dimension, and the others go together."""
    parts = [graph.dims(value) for value in node.args[0]]  # type: ignore[union-attr]
    result = list(parts[0])
    for dims in parts[1:]:
        result = [join(one, other) for one, other in zip(result, dims, strict=True)]
    result.insert(_argument(node, 1, "dim", 0) % len(shape(node)), None)
    return tuple(result)


# operations that move entries


def _permuted(graph: "Graph", node: Node) -> Dims:
    dims = graph.dims(node.args[0])
    return tuple(dims[axis] for axis in _argument(node, 1, "dims"))


def _transposed(graph: "Graph", node: Node) -> Dims:
    dims = list(graph.dims(node.args[0]))
    one, other = _argument(node, 1, "dim0"), _argument(node, 2, "dim1")
    dims[one], dims[other] = dims[other], dims[one]
    return tuple(dims)


def _expanded(graph: "Graph", node: Node) -> Dims:
    """Dimensions of length 1, and new ones in front, are repeated. The graph fixes a channel that is repeated."""
    dims = graph.dims(node.args[0])
    return (*(None,) * (len(shape(node)) - len(dims)), *dims)


def _reshaped(graph: "Graph", node: Node) -> Dims | None:
    """A reshape keeps, merges or splits dimensions, block by block of equally many entries."""
    before, after, dims = shape(node.args[0]), shape(node), graph.dims(node.args[0])
    if 0 in before:
        return None
    result: list[Dim | None] = []
    first_in = first_out = 0
    while first_in < len(before) or first_out < len(after):
        last_in, last_out = min(first_in + 1, len(before)), min(first_out + 1, len(after))
        while (entries := math.prod(before[first_in:last_in])) != (others := math.prod(after[first_out:last_out])):
            if entries < others:
                last_in += 1
            else:
                last_out += 1
        block = list(zip(before[first_in:last_in], dims[first_in:last_in], strict=True))
        result += _block(block, after[first_out:last_out])
        first_in, first_out = last_in, last_out
    return tuple(result)


def _block(before: list[tuple[int, Dim | None]], after: tuple[int, ...]) -> list[Dim | None]:
    """Channels of a block's first dimension stay whole in the first of the new ones, with another repeat; all others
    are fixed."""
    result: list[Dim | None] = [None] * len(after)
    long = [(length, dim) for length, dim in before if length > 1]
    axis = next((axis for axis, length in enumerate(after) if length > 1), None)
    fix(*(dim for _, dim in long[1:]))
    first = long[0][1] if long else None
    if first is None or axis is None:
        return result
    behind = math.prod(after[axis + 1 :])
    repeat = first.repeat * math.prod(length for length, _ in long[1:])  # entries of the block for each channel
    if repeat % behind:
        first.channels.fix()
    else:
        result[axis] = Dim(first.channels, repeat // behind)
    return result


_BY_RULE: dict[Rule, str] = {
    _convolution: "conv1d.default conv2d.default conv3d.default conv1d.padding conv2d.padding",
    _linear: "linear.default",
    _embedding: "embedding.default",
    _batch_norm: "batch_norm.default",
    _layer_norm: "layer_norm.default",
    _group_norm: "group_norm.default",
    _prelu: "prelu.default",
    _same: "dropout.default dropout_.default feature_dropout.default contiguous.default alias.default clone.default "
    "detach.default to.dtype hardswish.default hardswish_.default silu.default silu_.default",
    _pooled: "max_pool2d.default avg_pool2d.default adaptive_avg_pool2d.default adaptive_max_pool2d.default "
    "upsample_nearest2d.vec upsample_bilinear2d.vec",
    _padded: "pad.default",
    _reduced: "mean.dim sum.dim_IntList amax.default amin.default",
    _mixed: "softmax.int log_softmax.int slice.Tensor narrow.default",
    _selected: "select.int unbind.int",
    _cut: "chunk.default split.Tensor split_with_sizes.default",
    _concatenated: "cat.default",
    _stacked: "stack.default",
    _permuted: "permute.default",
    _transposed: "transpose.int",
    _expanded: "expand.default expand_as.default",
    _reshaped: "view.default reshape.default flatten.using_ints unflatten.int unsqueeze.default squeeze.dim "
    "squeeze.dims squeeze.default",
}
_RULES: dict[str, Rule] = {f"aten.{name}": rule for rule, names in _BY_RULE.items() for name in names.split()}
