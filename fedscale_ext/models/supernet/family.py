"""Supernets: networks that hold several operators for each searchable layer and run a path, one of each (FedorAS).

A spec holds a space (:mod:`fedscale_ext.models.supernet.spaces`) and ``ops``, for each searchable layer the operators
that this network holds: all of them are the supernet, some a subspace, one each a path, an ordinary model for any
method. Tensors have the same names whatever is held (``stem.…``, ``layers.{layer}.{operator}.…``,
``reductions.{group}.…``, ``classifier.…``), so that the state of a subspace is the whole's state restricted to its
names.

Fields of every spec: ``form`` cnn or rnn; ``input_shape`` (C, H, W); ``num_classes``; ``ops``. Of a cnn: ``stem``
(width, stride); ``blocks``, how many layers stand before each reduction; ``reductions``, each (kind, width,
stride) with the kinds conv, separable and pool. Of an rnn, whose samples are the numbers of ``symbols`` in any shape:
widths ``embedding`` and ``hidden``; ``stages`` of two layers each that are summed, the second of which may be zero;
``readout`` last or all, where the logits of training are read.

``mixed`` makes a network of it that runs all operators that it holds at once, without a choice (FedNAS, SPIDER):
alphas, by the softmax of a parameter vector for each layer (``alphas.{layer}``), or equal, in equal shares.
"""

from collections.abc import Callable
from functools import partial

from torch import nn

from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.models.supernet.costs import (
    Tables,
    axes,
    cheapest_path,
    cost,
    dearest_path,
    path_cost,
    tables,
)
from fedscale_ext.models.supernet.modules import ConvolutionNet, RecurrentNet, Searchable
from fedscale_ext.models.supernet.spaces import (
    FIELDS,
    SHORT,
    SPACES,
    Shape,
    check,
    completed,
    make,
    mixed,
    mixture,
    path_of,
    restricted,
)

__all__ = [
    "FIELDS",
    "NAMED",
    "SHORT",
    "Searchable",
    "Tables",
    "build",
    "cheapest_path",
    "completed",
    "cost",
    "dearest_path",
    "layout",
    "make",
    "mixed",
    "path_cost",
    "path_of",
    "reads_symbols",
    "restricted",
    "searched",
    "tables",
]


def build(spec: ModelSpec) -> nn.Module:
    """The network of a spec, with torch's own initialisation."""
    check(spec)
    return ConvolutionNet(spec) if spec["form"] == "cnn" else RecurrentNet(spec)


def layout(spec: ModelSpec) -> Layout:
    """No axis belongs to a group: operators are held whole or not at all."""
    return {name: (None,) * number for name, number in axes(spec).items()}


def searched(spec: ModelSpec) -> bool:
    """Return whether the network holds several operators per layer, so that it runs only with a chosen path."""
    return mixture(spec) is None and any(len(held) > 1 for held in spec["ops"])


def reads_symbols(spec: ModelSpec) -> bool:
    """Return whether samples are numbers of symbols."""
    return bool(spec["form"] == "rnn")


def _named(name: str, input_shape: Shape, num_classes: int) -> ModelSpec:
    return make(input_shape, num_classes, **SPACES[name])


def _path(name: str, find: Callable[[ModelSpec], tuple[str, ...]], shape: Shape, classes: int) -> ModelSpec:
    spec = _named(name, shape, classes)
    return path_of(spec, find(spec))


# ..._largest, ..._smallest: the dearest and the cheapest path, plain networks
NAMED: dict[str, Callable[[Shape, int], ModelSpec]] = {
    **{name: partial(_named, name) for name in SPACES},
    **{f"{name}_largest": partial(_path, name, dearest_path) for name in SPACES},
    **{f"{name}_smallest": partial(_path, name, cheapest_path) for name in SPACES},
}
