"""What each operator of a supernet costs, and with it any of its paths, without building it.

An operator is counted once for each place where it stands, so that the cost of a subspace, of which a job draws many,
is a sum.
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
from fedscale_ext.models.parts import SpatialMean
from fedscale_ext.models.supernet.modules import ConvolutionNet, RecurrentNet
from fedscale_ext.models.supernet.operators import LayerShape
from fedscale_ext.models.supernet.spaces import FORMS, check, layer_shapes, mixed, mixture

# What ptflops, which the paper's MFLOPs come from, counts beside products, by module: per output entry, per input entry
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

_COUNTED = 3  # positions of a sequence that are really counted


class Facts(NamedTuple):
    """Of an operator or of what is fixed: MACs per sample, those of forward and backward, what ptflops counts more
    than that; trainable parameters, bytes of the state, and the tensors' names with their numbers of axes."""

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

    hooks = [part.register_forward_hook(note) for part in module.modules() if type(part) in _BESIDE]
    forward, training = count(module, x)
    for hook in hooks:
        hook.remove()
    axes = tuple((name, tensor.dim()) for name, tensor in module.state_dict().items())
    return Facts(forward, training, beside // BATCH, *sizes(module), axes)


@lru_cache(maxsize=4096)
def _operator(form: str, name: str, layer: LayerShape) -> Facts:
    if form == "rnn" and layer.shape[0] > _COUNTED:  # each further position costs the same
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
    """Stem, reductions and classifier: the network whose layers do nothing."""
    with torch.device("meta"):
        module = ConvolutionNet(spec) if spec["form"] == "cnn" else RecurrentNet(spec)
        width = 0 if spec["form"] == "cnn" else spec["hidden"]
        module.layers = nn.ModuleList(_Through(width) for _ in module.layers)
    return _facts(module, torch.empty(BATCH, *spec["input_shape"], device="meta"))


class _Through(nn.Module):
    """What it reads, repeated along the last axis to ``width`` where that is not 0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        return x[..., :1].expand(*x.shape[:-1], self.width) if self.width else x


def fixed(spec: ModelSpec) -> Facts:
    """Facts of what all paths share; the same for every subspace."""
    check(spec)
    plain = "linear" if spec["form"] == "rnn" else "conv1"
    return _fixed(mixed(spec, None).replace(ops=((plain,),) * len(spec["ops"])))


def operators(spec: ModelSpec) -> list[list[Facts]]:
    """Facts of each operator that the spec holds, by layer."""
    check(spec)
    return [
        [_operator(spec["form"], name, layer) for name in held]
        for held, layer in zip(spec["ops"], layer_shapes(spec), strict=True)
    ]


@dataclass(frozen=True)
class Tables:
    """What the operators ``ops`` of a space cost. Arrays are [layers, most operators of a layer]; a layer with fewer
    has infinite MACs and nothing else behind its own, and ``held`` False.

    ``macs`` float64 per sample, infinite for operators that are not supported; ``parameters`` and ``bytes`` (buffers
    too) int64. ``fixed_…``: the same for stem, reductions and classifier, which are part of every path.
    """

    ops: tuple[tuple[str, ...], ...]
    held: np.ndarray
    macs: np.ndarray
    parameters: np.ndarray
    bytes: np.ndarray
    fixed_macs: float
    fixed_parameters: int
    fixed_bytes: int

    def indices(self, path: Sequence[str]) -> np.ndarray:
        """A path's columns in the tables, int64 [layers]; ValueError for a name that its layer does not have."""
        return np.array([held.index(name) for held, name in zip(self.ops, path, strict=True)])

    def path(self, indices: Sequence[int] | np.ndarray) -> tuple[str, ...]:
        """The path of columns [layers]: inverse of :meth:`indices`."""
        return tuple(held[index] for held, index in zip(self.ops, indices, strict=True))


def tables(spec: ModelSpec, *, unsupported: Collection[str] = (), published: bool = False) -> Tables:
    """The cost tables of what a spec holds.

    ``unsupported``: names of operators that a class of devices cannot run. ``published``: count as the paper does
    (by ptflops): normalisation, activations, pooling and biases beside products, some per cent more than
    ``models.cost`` counts. The paper's tiers and budgets are in that measure. UserError for an unsupported operator
    that the form of the space does not know, and for a layer that is left without any.
    """
    known = FORMS[spec["form"]]
    for name in unsupported:
        if name not in known:
            raise UserError(f"there is no operator {name!r}{did_you_mean(name, known)}")
    rows, shared = operators(spec), fixed(spec)
    shape = len(rows), max(map(len, rows))
    macs, held = np.full(shape, np.inf), np.zeros(shape, dtype=bool)
    parameters, size = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for layer, (row, names) in enumerate(zip(rows, spec["ops"], strict=True)):
        if all(name in unsupported for name in names):
            raise UserError(f"all operators of layer {layer} are unsupported: {', '.join(names)}; leave one")
        for column, (facts, name) in enumerate(zip(row, names, strict=True)):
            held[layer, column] = True
            if name not in unsupported:
                macs[layer, column] = facts.macs + published * facts.beside
            parameters[layer, column], size[layer, column] = facts.parameters, facts.bytes
    return Tables(
        spec["ops"], held, macs, parameters, size,
        float(shared.macs + published * shared.beside), shared.parameters, shared.bytes,
    )  # fmt: skip


def path_cost(table: Tables, path: Sequence[str]) -> float:
    """MACs per sample of a path, one operator name per layer; infinite with an unsupported one."""
    chosen = table.macs[np.arange(len(table.ops)), table.indices(path)]
    return float(table.fixed_macs + chosen.sum())


def dearest_path(spec: ModelSpec) -> tuple[str, ...]:
    """The path of most MACs."""
    table = tables(spec)
    return table.path(np.where(table.held, table.macs, -1).argmax(1))


def cheapest_path(spec: ModelSpec) -> tuple[str, ...]:
    """The path of fewest MACs."""
    table = tables(spec)
    return table.path(table.macs.argmin(1))


@lru_cache(maxsize=4096)
def cost(spec: ModelSpec) -> Cost:
    """Parameters and bytes of everything that the spec holds; MACs of its dearest path, of which one runs at a time,
    or of a mixture those of all operators."""
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
    """Number of axes of every tensor of the spec's state, in its order."""
    shared = dict(fixed(spec).axes)
    num_axes = {name: count for name, count in shared.items() if name.startswith("stem.")}
    for layer, (held, row) in enumerate(zip(spec["ops"], operators(spec), strict=True)):
        for name, facts in zip(held, row, strict=True):
            num_axes |= {f"layers.{layer}.{name}.{tensor}": count for tensor, count in facts.axes}
    num_axes |= shared
    return num_axes | ({f"alphas.{layer}": 1 for layer in range(len(spec["ops"]))} if mixture(spec) == "alphas" else {})
