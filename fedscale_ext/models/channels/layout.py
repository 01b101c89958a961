"""The layout of any network, made by following channels through its forward pass.

``torch.export`` gives the pass as a graph of tensor operations. A layer with weights reads one set of channels and
makes another. An operation that works channel by channel passes sets on, and joins those that it combines
(``rules.py``). Any other operation fixes the sets that it meets: their channels are never cut, which is safe for an
operation that is not known here. The idea is the dependency graph of Fang et al. (DepGraph, CVPR 2023).
"""

import warnings
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.core.model_spec import Axis, Layout
from fedscale_ext.models.channels.rules import rule_of, shape
from fedscale_ext.models.channels.sets import Channels, Dim, Dims, fix, join

_BATCH = 2  # of the traced pass; 1 would broadcast
_TASK = ("input", "classes")  # groups that data and task fix


def channel_layout(module: nn.Module, input_shape: tuple[int, int, int]) -> Layout:
    """Return the axes of every tensor of a network's state, its channel groups found from its forward pass.

    Groups are named after the first module that makes their channels. Channels of the input are the group ``input``,
    the last dimension of the output is ``classes``. An axis whose channels cannot be cut is None.

    Args:
        module: Network on the CPU, [B, C, H, W] -> logits.
        input_shape: Shape of a sample, (C, H, W).

    Raises:
        UserError: If torch.export cannot follow the forward pass.

    """
    graph = Graph(module)
    sample = torch.zeros(_BATCH, *input_shape, device="cpu")
    try:
        with warnings.catch_warnings(action="ignore"):
            program = torch.export.export(module, (sample,), strict=False)
    except Exception as error:  # whatever the network's own code and torch raise
        raise UserError(
            f"torch.export cannot follow the forward pass of {type(module).__name__}, so that its channels are not "
            f"known: {one_line(str(error), 200)}"
        ) from None
    graph.follow(program)
    return {name: tuple(map(_axis, dims, graph.roles[name])) for name, dims in graph.tensors.items()}


def _axis(dim: Dim | None, role: str) -> Axis | None:
    if dim is None or (dim.channels.fixed and dim.channels.name not in _TASK):
        return None
    return Axis(dim.channels.name, role, dim.repeat)


def _whole_where_longer(dims: Dims, node: Node) -> Dims:
    """Fix channels along dimensions that have another length than these channels.

    An operation has padded or repeated them. With fewer channels, what follows would read other ones in their place.
    """
    if not isinstance(node.meta.get("val"), torch.Tensor):  # parts, each of which is looked at when it is taken
        return dims
    longer = [dim is not None and dim.length != length for dim, length in zip(dims, shape(node), strict=True)]
    fix(*(dim for dim, other in zip(dims, longer, strict=True) if other))
    return tuple(None if other else dim for dim, other in zip(dims, longer, strict=True))


class Graph:
    """The channels of a network.

    ``tensors`` are those of its state, by name, with the channels along each axis; ``roles`` are the axes' roles. All
    names of one tensor (tied weights) share them: torch.export follows it under one of its names.
    """

    def __init__(self, module: nn.Module) -> None:
        state = module.state_dict(keep_vars=True)
        dims: dict[torch.Tensor, list[Dim | None]] = {tensor: [None] * tensor.dim() for tensor in state.values()}
        roles = {tensor: ["out"] * tensor.dim() for tensor in state.values()}
        self.tensors = {name: dims[tensor] for name, tensor in state.items()}
        self.roles = {name: roles[tensor] for name, tensor in state.items()}
        self._state: dict[Any, str] = {}  # nodes that are tensors of the state
        self._values: dict[Any, Dims] = {}

    def follow(self, program: torch.export.ExportedProgram) -> None:
        """Follow channels from the input to the output."""
        signature = program.graph_signature
        names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        for node in program.graph.nodes:
            if node.op == "placeholder" and names.get(node.name) in self.tensors:
                self._state[node] = names[node.name]
            elif node.op == "placeholder" and node.name in signature.user_inputs:
                channels = Channels(shape(node)[1], "input")
                channels.fix()
                self._values[node] = (None, Dim(channels), None, None)
            elif node.op == "call_function":
                self._values[node] = self._result(node)
            elif node.op == "output":
                for value in node.all_input_nodes:
                    if value.name in signature.user_outputs:
                        self._end(self.dims(value))

    def dims(self, value: Any) -> Dims:
        """Return the channels along an operand's dimensions. A tensor of the state used as data has sets of its own."""
        if value in self._state:
            return tuple(self.make(value, axis) for axis in range(len(shape(value))))
        return self._values.get(value, (None,) * len(shape(value)))

    def values(self, node: Any) -> Dims:
        """Return the channels of each of the parts that an operation gives."""
        return self._values.get(node, ())

    def make(self, weight: Any, axis: int = 0) -> Dim | None:
        """Return the set of channels along an axis of a tensor of the state, a new one at its first use."""
        name = self._state.get(weight)
        if name is None:
            return self.dims(weight)[axis]
        known = self.tensors[name][axis]
        if known is None:
            module = name.rpartition(".")[0] or name
            known = self.tensors[name][axis] = Dim(Channels(shape(weight)[axis], module))
        return known

    def run_along(self, weight: Any, axis: int, dim: Dim | None, role: str = "out") -> None:
        """Note that an axis of a weight runs over these channels of the data; no weight is None."""
        if not isinstance(weight, Node):
            return
        name = self._state.get(weight)
        if name is not None and self.tensors[name][axis] is None and dim is not None:
            self.tensors[name][axis], self.roles[name][axis] = dim, role
        else:
            join(self.make(weight, axis), dim)

    def _result(self, node: Node) -> Dims:
        rule = rule_of(node)
        dims = rule(self, node) if rule else None
        if dims is not None:
            return _whole_where_longer(dims, node)
        for value in node.all_input_nodes:
            fix(*self.dims(value))
        return (None,) * len(shape(node))

    def _end(self, dims: Dims) -> None:
        fix(*dims)
        if dims and dims[-1] is not None:
            dims[-1].channels.fix("classes")
