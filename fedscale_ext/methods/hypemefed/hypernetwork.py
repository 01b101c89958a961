"""Hypernetworks H_{n->n+1}: from a layer's weight to that of the next block's layer (Shin et al., section 4.4).

:class:`HyperNetwork` is the paper's: two networks, one for left and one for right singular vectors, each of which maps
a layer's components one by one. :class:`VectorNetwork` maps whole vectors: the naive hypernetwork that the paper
compares with, and the generation of BatchNorm and linear layers (section 5.3.2).

Departures from the paper and the public code:

* A network has one ReLU.
* It has 512 hidden units, as in the public code. The text names no number, and Table 1's sizes fit none.
* No factors are stored, so that the size does not depend on k.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from fedscale_ext.methods.hypemefed import vectors
from fedscale_ext.methods.hypemefed.factorisation import Factors, matrix_shape
from fedscale_ext.methods.hypemefed.losses import Target, factor_loss, row_loss, weight_loss
from fedscale_ext.methods.hypemefed.mlp import Mlp, backward, forward
from fedscale_ext.methods.hypemefed.pairs import Pair
from fedscale_ext.methods.hypemefed.params import HyperNetworkParams


class Moments(NamedTuple):
    """Adam's memory: first and second moment [parameters], and its number of steps (0-d)."""

    first: torch.Tensor
    second: torch.Tensor
    steps: torch.Tensor


class Network(ABC):
    """Networks whose parameters lie in one flat tensor.

    ``values`` [parameters], float32; ``moments`` where they are kept between rounds; ``rounds``: in how many
    it was trained.
    """

    def __init__(self, parts: Sequence[Mlp], generator: torch.Generator) -> None:
        self.parts = tuple(parts)
        self.values = torch.cat([part.draw(generator) for part in parts])
        self.moments: Moments | None = None
        self.rounds = 0

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return self.values.numel()

    @abstractmethod
    def gradients(self, sample: Any, values: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        """The loss of one sample (float64, 0-d) at ``values`` [parameters]; its gradient is written into ``into``."""

    def _split(self, flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[parameters] -> a view [part.parameters] for each part."""
        return flat.split([part.parameters for part in self.parts])


class HyperNetwork(Network):
    """(f_A, f_B): p^_r = f_A(p_r), q^_r = f_B(q_r), and the next weight is the sum over r of p^_r q^_r^T."""

    def predict(self, factors: Factors) -> Factors:
        """P^ [I' kh, k] and Q^ [k, O' kw] from P [I kh, k] and Q [k, O kw]."""
        p, q = factors
        left, right = (part.layers(flat) for part, flat in zip(self.parts, self._split(self.values), strict=True))
        p_hat = forward(left, p.T)[1]  # [k, I kh] -> [k, I' kh]
        q_hat = forward(right, q)[1]  # [k, O kw] -> [k, O' kw]
        return p_hat.T, q_hat

    def gradients(
        self, sample: tuple[Factors, Target | Factors], values: torch.Tensor, into: torch.Tensor
    ) -> torch.Tensor:
        """The loss against a weight, or against the components of the next layer one by one (``factor_loss``)."""
        (source_p, source_q), target = sample
        rows = (source_p.T, source_q)  # [k, I kh], [k, O kw]
        layers = [part.layers(flat) for part, flat in zip(self.parts, self._split(values), strict=True)]
        outputs = [part.layers(flat) for part, flat in zip(self.parts, self._split(into), strict=True)]
        (hidden_p, p), (hidden_q, q) = map(forward, layers, rows)  # p [k, I' kh], q [k, O' kw]
        if isinstance(target, Target):
            loss, by_p, by_q = weight_loss(p, q, target)  # target [I' kh, O' kw]; by_p, by_q as p, q
        else:
            loss, by_p, by_q = factor_loss(p, q, target)
        backward(layers[0], outputs[0], rows[0], hidden_p, by_p)
        backward(layers[1], outputs[1], rows[1], hidden_q, by_q)
        return loss


class VectorNetwork(Network):
    """One network that maps rows [n, inputs] to rows [n, outputs]."""

    def predict(self, rows: torch.Tensor) -> torch.Tensor:
        """Map rows [n, inputs] to rows [n, outputs]."""
        return forward(self.parts[0].layers(self.values), rows)[1]

    def gradients(
        self, sample: tuple[torch.Tensor, torch.Tensor], values: torch.Tensor, into: torch.Tensor
    ) -> torch.Tensor:
        """The mean squared error of a sample: rows [n, inputs] and target rows [n, outputs]."""
        rows, target = sample
        layers = self.parts[0].layers(values)
        hidden, outputs = forward(layers, rows)  # [n, hidden], [n, outputs]
        loss, gradient = row_loss(outputs, target)
        backward(layers, self.parts[0].layers(into), rows, hidden, gradient)
        return loss


def by_components(pair: Pair, params: HyperNetworkParams) -> bool:
    """Whether the pair's network maps singular components; else it maps whole vectors."""
    return pair.kind == "conv" and params.variant == "low_rank"


def parts(pair: Pair, params: HyperNetworkParams) -> list[Mlp]:
    """(f_A, f_B) for left and right components (section 4.4), or the one network for whole vectors."""
    if by_components(pair, params):
        source, target = pair.source_shapes["weight"], pair.target_shapes["weight"]
        sides = list(zip(matrix_shape(source), matrix_shape(target), strict=True))
    else:
        sides = [(vectors.width(pair.kind, pair.source_shapes), vectors.width(pair.kind, pair.target_shapes))]
    return [Mlp(inputs, params.hidden, outputs) for inputs, outputs in sides]
