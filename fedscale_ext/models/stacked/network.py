"""K networks of one spec as one network, so that a cohort of clients trains in one pass per layer.

The family's own module is traced (torch.fx), and each of its layers is replaced by its stacked form. A family thus
needs no second definition. A network with an operation that has no stacked form runs under torch.func.vmap instead
(:func:`stacked` chooses).
"""

import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional

from fedscale_ext.models.families import vit
from fedscale_ext.models.layers.dropout import Dropout
from fedscale_ext.models.layers.feature_output import Columns, LinearWithInput, SquaredError
from fedscale_ext.models.layers.final_layer import Input, input_of
from fedscale_ext.models.layers.parts import ChannelScale, SpatialMean
from fedscale_ext.models.multi_exit.modules import ExitStack, LastExit
from fedscale_ext.models.stacked import layers
from fedscale_ext.models.stacked import tokens as stacked_tokens
from fedscale_ext.models.stacked.mapped import Mapped
from fedscale_ext.models.stacked.trial import STEPS, computes_alike
from fedscale_ext.util.machine_errors import of_machine

_PACKAGE_MODULES = (
    SpatialMean, ChannelScale, vit.Patches, vit.Attention, vit.TokenMean, Dropout, ExitStack, LastExit, LinearWithInput,
    Columns, SquaredError,
)  # fmt: skip

_ELEMENTWISE_MODULES = (
    nn.ReLU, nn.ReLU6, nn.Sigmoid, nn.Tanh, nn.SiLU, nn.GELU, nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.Hardsigmoid,
    nn.Softplus, nn.Identity,
)  # fmt: skip
_POOLING_MODULES = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.ZeroPad2d)
_ELEMENTWISE = {
    functional.relu, functional.relu6, functional.sigmoid, functional.silu, functional.gelu, functional.hardswish,
    functional.hardsigmoid, functional.leaky_relu, functional.elu, torch.relu, torch.sigmoid, torch.tanh, torch.add,
    torch.mul, torch.sub, operator.add, operator.mul, operator.sub, operator.iadd, operator.imul,
    "relu", "sigmoid", "tanh", "add", "mul", "sub",
}  # fmt: skip
_POOLING = {functional.max_pool2d, functional.avg_pool2d, functional.adaptive_avg_pool2d, functional.interpolate}
_KNOWN = "fedscale_ext.", "torch.nn.", "torchvision.models.", "torchvision.ops.", "timm."
_SPATIAL = ([2, 3], [-2, -1])


class NoStackedForm(Exception):
    """Raised for an operation without a stacked layer; the message names it."""


class Stacked(nn.Module):
    """Networks of K clients in training mode: [B, K, C, H, W] -> [K, B, classes]."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.graph = graph
        self._layers = [layer for layer in graph.modules() if isinstance(layer, layers.Layer)]

    def bind(
        self,
        tensors: Mapping[str, Tensor],
        clients: int,
        mask: Tensor | None = None,
        shared: Mapping[str, layers.SharedWeight] = layers.NOTHING_SHARED,
    ) -> None:
        """Use the tensors of the first clients.

        Args:
            tensors: By state name, [K, *shape].
            clients: Number of clients, K.
            mask: Which rows of a batch are samples, bool [B, K]; None: all.
            shared: By state name, weights of linear layers that are not among the tensors.

        """
        for layer in self._layers:
            layer.bind(tensors, clients, mask, shared)

    @property
    def draws(self) -> bool:
        """Return whether it has layers that draw random numbers."""
        return any(isinstance(layer, layers.Dropout) for layer in self._layers)

    @contextmanager
    def drawing(self, generators: Sequence[torch.Generator]) -> Iterator[None]:
        """Let the dropout layers draw from one generator per client in the block; see :func:`dropout.drawing`."""
        drawn = [layer for layer in self._layers if isinstance(layer, layers.Dropout)]
        for layer in drawn:
            layer.generators = generators
        try:
            yield
        finally:
            for layer in drawn:
                layer.generators = ()

    def sharable(self, tap: str | None = None) -> list[str]:
        """Return the state names of weights that clients can share: of linear layers with a bias, called once.

        Args:
            tap: Name of a layer that the clients' loss may call, too.

        """
        names = [layer.state_name for layer in self._layers if isinstance(layer, layers.Linear) and layer.biased]
        once = [name for name in names if names.count(name) == 1 and name != tap]
        return [f"{name}.weight" if name else "weight" for name in once]

    @contextmanager
    def tapped(self, name: str) -> Iterator[Input]:
        """Keep the last input [K, B, features] of the linear layer ``name`` while the block runs."""
        with input_of(self._linear(name)) as last:
            yield last

    def linear(self, name: str) -> Callable[[Tensor], Tensor]:
        """Return the linear layer ``name``: [K, B, features] -> [K, B, outputs]."""
        layer = self._linear(name)
        if isinstance(layer, stacked_tokens.Linear):  # in the network, its inputs have an axis of tokens or exits
            return lambda features: layer(features.unsqueeze(2)).squeeze(2)
        return layer

    def _linear(self, name: str) -> layers.Layer:
        linear = layers.Linear, stacked_tokens.Linear
        (layer,) = (each for each in self._layers if isinstance(each, linear) and each.state_name == name)
        return layer

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.graph(x.flatten(1, 2))  # [B, K * C, H, W]


def stacked(module: nn.Module, input_shape: tuple[int, ...]) -> Stacked | Mapped | None:
    """Return the cohort form of a module, which holds no tensors of its own.

    Args:
        module: The network of one client.
        input_shape: Shape of a sample, (C, H, W).

    Returns:
        The cohort form. None for a module that cannot train in cohorts: its layers share a tensor, vmap refuses it, it
        draws random numbers other than by ``models/layers/dropout.py``, which draws each client's from its own stream,
        or a trial shows that a cohort would not train as its clients alone do.

    """
    if len(list(module.parameters())) != len(list(module.named_parameters(remove_duplicate=False))):
        return None
    if any(isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 for part in module.modules()):
        return None
    if any(parameter._backward_hooks for parameter in module.parameters()):
        return None
    module.train()
    return _tried(_stack, module, input_shape) or _tried(_map, module, input_shape)


_Form = TypeVar("_Form", "Stacked", "Mapped")


def _tried(
    form: Callable[[nn.Module, tuple[int, ...]], _Form], module: nn.Module, input_shape: tuple[int, ...]
) -> _Form | None:
    """Return a cohort form; None where it cannot be made, or does not train as the module itself."""
    try:
        network = form(module, input_shape)
        if isinstance(network, Stacked) and _is_known(module):
            return network
        try:
            alike = _computes_alike(form, copy.deepcopy(module).double(), input_shape)
        except Exception as error:
            if of_machine(error):
                raise
            alike = _computes_alike(form, copy.deepcopy(module), input_shape)  # its code may ask for float32
        return network if alike else None
    except Exception as error:  # there is none, or whatever the network's own code raises for a proxy or within vmap
        if of_machine(error):
            raise
        return None


def _computes_alike(
    form: Callable[[nn.Module, tuple[int, ...]], _Form], module: nn.Module, input_shape: tuple[int, ...]
) -> bool:
    module.train()
    return computes_alike(form(module, input_shape), module, input_shape)


def _stack(module: nn.Module, input_shape: tuple[int, ...]) -> Stacked:
    return Stacked(_stacked_graph(module, input_shape))


def _map(module: nn.Module, input_shape: tuple[int, ...]) -> Mapped:
    return Mapped(module)


def _is_known(module: nn.Module) -> bool:
    """Whether all code is of packages that do nothing around their networks' operations: a trial shows nothing new."""
    return all(type(part).__module__.startswith(_KNOWN) for part in module.modules())


class _Tracer(fx.Tracer):
    """Traces a network without entering torch's layers and this package's."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, _PACKAGE_MODULES) or super().is_leaf_module(m, module_qualified_name)


def _stacked_graph(module: nn.Module, input_shape: tuple[int, ...]) -> fx.GraphModule:
    if not all(part.training for part in module.modules()):
        raise NoStackedForm("a part stays in evaluation")
    if any(_has_hooks(part) for part in module.modules()):
        raise NoStackedForm("a part has hooks")
    try:
        tracer = _Tracer()
        traced = fx.GraphModule(module, tracer.trace(module))
    except Exception as error:  # fx raises whatever the module's Python does with a proxy
        raise NoStackedForm(f"it cannot be traced: {error}") from None
    example = next(iter(module.parameters()))
    ShapeProp(traced).propagate(torch.zeros(2, *input_shape, device=example.device, dtype=example.dtype))
    root, graph = nn.Module(), fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in traced.graph.nodes:
        layer = _replacement(node, traced)
        if layer is None:
            if node.op == "call_module":
                root.add_module(_plain(node.name), traced.get_submodule(str(node.target)))
            copies[node] = graph.node_copy(node, lambda old: copies[old])
            if node.op == "call_module":
                copies[node].target = _plain(node.name)
        else:
            root.add_module(_plain(node.name), layer)
            inputs = node.args[0] if isinstance(layer, layers.Concatenate) else node.all_input_nodes
            copies[node] = graph.call_module(_plain(node.name), tuple(copies[old] for old in inputs))
    return fx.GraphModule(root, graph)


def _has_hooks(module: nn.Module) -> bool:
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(hooks)


def _plain(name: str) -> str:
    return f"layer_{name}"


def _shape(node: Any) -> tuple[int, ...]:
    meta = node.meta.get("tensor_meta") if isinstance(node, fx.Node) else None
    return tuple(getattr(meta, "shape", ()))


def _dimensions(node: Any) -> int:
    return len(_shape(node))


def _replacement(node: fx.Node, traced: fx.GraphModule) -> layers.Layer | None:
    """Return the stacked layer for a node; None if the node serves the cohort unchanged."""
    if node.op in ("placeholder", "output"):
        return None
    if node.op == "call_module":
        if node.kwargs:
            raise NoStackedForm(f"{node.target} is called by keyword")
        module = traced.get_submodule(str(node.target))
        layer = _replaced_module(str(node.target), module, node)
        if layer is not None and not _reads_the_state(layer, module):
            raise NoStackedForm(f"the tensors of {node.target} are not those of its state")
        return layer
    if node.op in ("call_function", "call_method"):
        return _replaced_function(node)
    raise NoStackedForm(f"{node.op} {node.target}")


def _reads_the_state(layer: layers.Layer, module: nn.Module) -> bool:
    """Whether the tensors that a stacked layer takes for a module are exactly those of the module's state."""
    names = {name for name in layer.tensors if isinstance(_attribute(module, name), Tensor)}
    return names == {name for name in module.state_dict() if name != STEPS}


def _attribute(module: nn.Module, path: str) -> Any:
    """Return what ``module`` has under a path of names such as "conv.weight"; None if nothing."""
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _replaced_module(name: str, module: nn.Module, node: fx.Node) -> layers.Layer | None:
    dimensions = _dimensions(node.args[0])
    torchs = getattr(nn, type(module).__name__, None) is type(module)
    if not torchs and type(module) not in _PACKAGE_MODULES:
        raise NoStackedForm(f"{type(module).__name__} is not torch's own")  # a subclass may compute anything
    match module:
        case nn.Conv2d(padding_mode="zeros"):
            return layers.Convolution(name, module)
        case nn.BatchNorm2d() if module.momentum is not None:
            return layers.BatchNorm(name, module)
        case nn.GroupNorm() if dimensions == 4:
            return layers.GroupNorm(name, module)
        case LinearWithInput() if dimensions == 2:
            return layers.LinearWithInput(name, module)
        case LinearWithInput():
            raise NoStackedForm(f"LinearWithInput on {dimensions} dimensions")
        case nn.Linear() if dimensions == 2:
            return layers.Linear(name, module)
        case nn.Linear() if dimensions == 3:
            return stacked_tokens.Linear(name)
        case nn.LayerNorm(normalized_shape=(_,)) if dimensions == 3 and module.bias is not None:
            return stacked_tokens.LayerNorm(name, module)
        case SpatialMean():
            return layers.SpatialMean()
        case ChannelScale():
            return layers.ChannelScale()
        case vit.Patches():
            return stacked_tokens.Patches(name, module)
        case vit.Attention():
            return stacked_tokens.Attention(module)
        case vit.TokenMean():
            return stacked_tokens.TokenMean()
        case Dropout() if dimensions == 2:
            return layers.Dropout(module.p)
        case ExitStack() if dimensions == 2:
            return layers.ExitStack()
        case LastExit() if dimensions == 3:
            return None
        case Columns() | SquaredError() if dimensions == 2:
            return None
        case nn.Flatten(start_dim=1, end_dim=-1) if dimensions == 4:
            return layers.Flatten()
    if isinstance(module, _ELEMENTWISE_MODULES) or (isinstance(module, _POOLING_MODULES) and dimensions == 4):
        return None
    if isinstance(module, nn.Dropout | nn.Dropout2d):
        return None
    raise NoStackedForm(f"{type(module).__name__} on {dimensions} dimensions")


def _replaced_function(node: fx.Node) -> layers.Layer | None:
    target: Callable[..., Any] | str = node.target
    if any(isinstance(value, fx.Node) for value in node.kwargs.values()):
        raise NoStackedForm(f"{target} gets a tensor by keyword")
    inputs = [_dimensions(old) for old in node.args if isinstance(old, fx.Node)]
    # a channel that is broadcast would be broadcast over the clients too
    channels = {_shape(old)[1] for old in node.args if isinstance(old, fx.Node) and _dimensions(old) > 1}
    if target in _ELEMENTWISE and len(set(inputs)) == len(channels) == 1 and inputs[0] in (2, 3, 4):
        return None
    if target in _POOLING and inputs == [4]:
        return None
    flattens = target in (torch.flatten, "flatten") and _argument(node, 1, "start_dim") == 1
    if flattens and len(node.args) < 3 and inputs == [4]:
        return layers.Flatten()
    if target in (torch.mean, "mean") and inputs == [4] and not _argument(node, 2, "keepdim"):
        axes = _argument(node, 1, "dim")
        if isinstance(axes, list | tuple) and sorted(axes) in _SPATIAL:
            return layers.SpatialMean()
    if target is torch.cat and _argument(node, 1, "dim") == 1:
        parts = node.args[0]
        if isinstance(parts, list | tuple) and all(_dimensions(part) == 4 for part in parts):
            return layers.Concatenate()
    raise NoStackedForm(f"{target} on inputs of {inputs} dimensions")


def _argument(node: fx.Node, index: int, name: str) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name)
