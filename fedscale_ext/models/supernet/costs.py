"""Costs of a supernet's operators, and of any of its paths, without building the supernet.

An operator is counted once for each shape of its input and output. The cost of a subspace, of which a job draws many,
is then a sum.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.core.errors import UserError, did_you_mean
from fedscale_ext.core.model_spec import Cost, ModelSpec
from fedscale_ext.models.counting import BATCH, count, sizes
from fedscale_ext.models.layers.hooks import hooked
from fedscale_ext.models.layers.parts import SpatialMean
from fedscale_ext.models.supernet.modules import ConvolutionNet, RecurrentNet
from fedscale_ext.models.supernet.operators import LayerShape
from fedscale_ext.models.supernet.spaces import FORMS, check, layer_shapes, mixed, mixture

# operations beside products that ptflops counts, by module, from its input x and output y; the paper uses ptflops
_BESIDE: Mapping[type[nn.Module], Any] = {
    nn.BatchNorm2d: lambda module, x, y: 2 * y.numel(),
    nn.ReLU: lambda module, x, y: 2 * y.numel(),
    nn.AvgPool2d: lambda module, x, y: 2 * x.numel(),
    SpatialMean: lambda module, x, y: 2 * x.numel(),
    nn.Linear: lambda module, x, y: 0 if module.bias is None else y.numel(),
    nn.Conv1d: lambda module, x, y: y.numel(),
    nn.LSTM: lambda module, x, y: 18 * y[0].numel(),  # of them 8 biases
    nn.GRU: lambda module, x, y: 13 * y[0].numel(),  # of them 6 biases
}

_COUNTED = 3  # positions of a sequence that are counted; the cost of further ones is extrapolated


class Facts(NamedTuple):
    """Costs of an operator, or of the layers that all paths share.

    Attributes:
        macs: MACs per sample of the forward pass.
        training_macs: MACs per sample of forward and backward pass.
        beside: Operations per sample that ptflops counts in addition to ``macs``.
        parameters: Number of trainable parameters.
        bytes: Bytes of the state.
        axes: Name and number of axes of each tensor.

    """

    macs: int
    training_macs: int
    beside: int
    parameters: int
    bytes: int
    axes: tuple[tuple[str, int], ...]


def _facts(module: nn.Module, x: Tensor) -> Facts:
    beside = 0

    def note(part: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
        nonlocal beside
        beside += _BESIDE[type(part)](part, inputs[0], output)

    with hooked(part.register_forward_hook(note) for part in module.modules() if type(part) in _BESIDE):
        forward, training = count(module, x)
    axes = tuple((name, tensor.dim()) for name, tensor in module.state_dict().items())
    return Facts(forward, training, beside // BATCH, *sizes(module), axes)


@lru_cache(maxsize=4096)
def _operator(form: str, name: str, layer: LayerShape) -> Facts:
    if form == "rnn" and layer.shape[0] > _COUNTED:  # every further position costs the same
        steps, width = layer.shape
        less, more = (_operator(form, name, LayerShape((few, width), layer.width)) for few in (_COUNTED - 1, _COUNTED))
        further = steps - _COUNTED
        return more._replace(
            macs=more.macs + further * (more.macs - less.macs),
            training_macs=more.training_macs + further * (more.training_macs - less.training_macs),
            beside=more.beside + further * (more.beside - less.beside),
        )
    with torch.device("meta"):
        module = FORMS[form][name](layer)
    return _facts(module, torch.empty(BATCH, *layer.shape, device="meta", requires_grad=True))


@lru_cache(maxsize=64)
def _fixed(spec: ModelSpec) -> Facts:
    """Count stem, reductions and classifier, in a network whose searchable layers do nothing."""
    with torch.device("meta"):
        module = ConvolutionNet(spec) if spec["form"] == "cnn" else RecurrentNet(spec)
        width = 0 if spec["form"] == "cnn" else spec["hidden"]
        module.layers = nn.ModuleList(_Through(width) for _ in module.layers)
    return _facts(module, torch.empty(BATCH, *spec["input_shape"], device="meta"))


class _Through(nn.Module):
    """Returns its input; its first channel repeated to ``width`` channels, if that is not 0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        return x[..., :1].expand(*x.shape[:-1], self.width) if self.width else x


def fixed(spec: ModelSpec) -> Facts:
    """Return the costs of the layers that all paths share; they are the same for every subspace."""
    check(spec)
    plain = "linear" if spec["form"] == "rnn" else "conv1"
    return _fixed(mixed(spec, None).replace(ops=((plain,),) * len(spec["ops"])))


def operators(spec: ModelSpec) -> list[list[Facts]]:
    """Return the costs of each operator that the spec holds, by layer."""
    check(spec)
    return [
        [_operator(spec["form"], name, layer) for name in held]
        for held, layer in zip(spec["ops"], layer_shapes(spec), strict=True)
    ]


@dataclass(frozen=True)
class Tables:
    """Costs of a space's operators. Arrays are [layers, largest number of operators of a layer].

    Attributes:
        ops: Names of each layer's operators.
        held: Which entries are operators, bool; a layer with fewer operators has padding.
        macs: MACs per sample, float64; infinite for operators that are not supported, and for padding.
        training_macs: MACs per sample of forward and backward pass, float64; 0 for padding.
        parameters: Trainable parameters, int64; 0 for padding.
        bytes: Bytes of the state with buffers, int64; 0 for padding.
        fixed_macs: MACs of stem, reductions and classifier, which are part of every path.
        fixed_training_macs: Those of their forward and backward pass.
        fixed_parameters: Their parameters.
        fixed_bytes: Their bytes.

    """

    ops: tuple[tuple[str, ...], ...]
    held: np.ndarray
    macs: np.ndarray
    training_macs: np.ndarray
    parameters: np.ndarray
    bytes: np.ndarray
    fixed_macs: float
    fixed_training_macs: float
    fixed_parameters: int
    fixed_bytes: int

    def indices(self, path: Sequence[str]) -> np.ndarray:
        """Return a path's columns in the tables, int64 [layers]; raise ValueError for a name that its layer lacks."""
        return np.array([held.index(name) for held, name in zip(self.ops, path, strict=True)])

    def path(self, indices: Sequence[int] | np.ndarray) -> tuple[str, ...]:
        """Return the path of columns [layers]; the inverse of :meth:`indices`."""
        return tuple(held[index] for held, index in zip(self.ops, indices, strict=True))


def tables(spec: ModelSpec, *, unsupported: Collection[str] = (), published: bool = False) -> Tables:
    """Return the cost tables of a spec's operators.

    Args:
        spec: The supernet.
        unsupported: Names of operators that a class of devices cannot run.
        published: Whether to count as the paper does (by ptflops), in which its tiers and budgets are given. This
            includes normalisation, activations, pooling and biases, some per cent more than ``models.cost``.

    Raises:
        UserError: If an unsupported operator is unknown, or a layer has no supported one.

    """
    known = FORMS[spec["form"]]
    for name in unsupported:
        if name not in known:
            raise UserError(f"there is no operator {name!r}{did_you_mean(name, known)}")
    rows, shared = operators(spec), fixed(spec)
    shape = len(rows), max(map(len, rows))
    macs, training_macs, held = np.full(shape, np.inf), np.zeros(shape), np.zeros(shape, dtype=bool)
    parameters, size = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for layer, (row, names) in enumerate(zip(rows, spec["ops"], strict=True)):
        if all(name in unsupported for name in names):
            raise UserError(f"all operators of layer {layer} are unsupported: {', '.join(names)}; leave one")
        for column, (facts, name) in enumerate(zip(row, names, strict=True)):
            held[layer, column] = True
            if name not in unsupported:
                macs[layer, column] = facts.macs + published * facts.beside
            training_macs[layer, column] = facts.training_macs
            parameters[layer, column], size[layer, column] = facts.parameters, facts.bytes
    return Tables(
        spec["ops"], held, macs, training_macs, parameters, size,
        float(shared.macs + published * shared.beside), float(shared.training_macs), shared.parameters, shared.bytes,
    )  # fmt: skip


def path_cost(table: Tables, path: Sequence[str]) -> float:
    """Return the MACs per sample of a path, one operator name per layer; infinite with an unsupported one."""
    chosen = table.macs[np.arange(len(table.ops)), table.indices(path)]
    return float(table.fixed_macs + chosen.sum())


def dearest_path(spec: ModelSpec) -> tuple[str, ...]:
    """Return the path with the most MACs."""
    table = tables(spec)
    return table.path(np.where(table.held, table.macs, -1).argmax(1))


def cheapest_path(spec: ModelSpec) -> tuple[str, ...]:
    """Return the path with the fewest MACs."""
    table = tables(spec)
    return table.path(table.macs.argmin(1))


@lru_cache(maxsize=4096)
def cost(spec: ModelSpec) -> Cost:
    """Return the cost of a supernet.

    Parameters and bytes are those of all its operators. MACs are those of its dearest path, since one path runs at a
    time. Those of a mixture include all operators.
    """
    rows, shared = operators(spec), fixed(spec)
    every = [facts for row in rows for facts in row]
    run = [max(row, key=lambda facts: facts.macs) for row in rows] if mixture(spec) is None else every
    alphas = sum(map(len, rows)) if mixture(spec) == "alphas" else 0
    return Cost(
        forward_macs=shared.macs + sum(facts.macs for facts in run),
        training_macs=shared.training_macs + sum(facts.training_macs for facts in run),
        parameters=shared.parameters + sum(facts.parameters for facts in every) + alphas,
        bytes=shared.bytes + sum(facts.bytes for facts in every) + 4 * alphas,
    )


def axes(spec: ModelSpec) -> dict[str, int]:
    """Return the number of axes of every tensor of the spec's state, in its order."""
    shared = dict(fixed(spec).axes)
    num_axes = {name: count for name, count in shared.items() if name.startswith("stem.")}
    for layer, (held, row) in enumerate(zip(spec["ops"], operators(spec), strict=True)):
        for name, facts in zip(held, row, strict=True):
            num_axes |= {f"layers.{layer}.{name}.{tensor}": count for tensor, count in facts.axes}
    num_axes |= shared
    return num_axes | ({f"alphas.{layer}": 1 for layer in range(len(spec["ops"]))} if mixture(spec) == "alphas" else {})
