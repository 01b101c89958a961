"""Linear-ReLU-Linear with its gradient by hand, on parameters that lie in one flat tensor.

The hypernetworks' steps are short: batch 1, a hundred rows, millions of parameters. Gradients written to where
one fused Adam reads them, without autograd's copies, take about half of the time.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch


class Layers(NamedTuple):
    """Views of a flat tensor: w1 [hidden, inputs], b1 [hidden], w2 [outputs, hidden], b2 [outputs]."""

    w1: torch.Tensor
    b1: torch.Tensor
    w2: torch.Tensor
    b2: torch.Tensor


@dataclass(frozen=True)
class Mlp:
    """Sizes of a network that maps rows [n, inputs] to rows [n, outputs].

    One ReLU, between the layers: the output must be signed (the text's "two linear layers with ReLU activation for each
    layer", section 5.1, cannot be meant literally).
    """

    inputs: int
    hidden: int
    outputs: int

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return self.hidden * (self.inputs + 1) + self.outputs * (self.hidden + 1)

    def layers(self, flat: torch.Tensor) -> Layers:
        """Views of ``flat`` [parameters]."""
        h = self.hidden
        w1, b1, w2, b2 = flat.split([h * self.inputs, h, self.outputs * h, self.outputs])
        return Layers(w1.view(h, self.inputs), b1, w2.view(self.outputs, h), b2)

    def draw(self, generator: torch.Generator) -> torch.Tensor:
        """Draw initial values [parameters] as torch.nn.Linear does: uniform within 1/sqrt(fan in), biases too."""
        flat = torch.rand(self.parameters, generator=generator).mul_(2).sub_(1)
        layers = self.layers(flat)
        for fan_in, tensors in ((self.inputs, layers[:2]), (self.hidden, layers[2:])):
            for tensor in tensors:
                tensor.div_(math.sqrt(fan_in))
        return flat


def forward(layers: Layers, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden activations [n, hidden] and outputs [n, outputs] of rows [n, inputs]."""
    hidden = torch.addmm(layers.b1, rows, layers.w1.T).relu_()
    return hidden, torch.addmm(layers.b2, hidden, layers.w2.T)


def backward(layers: Layers, into: Layers, rows: torch.Tensor, hidden: torch.Tensor, gradient: torch.Tensor) -> None:
    """Write the gradients of all parameters into ``into``.

    Args:
        layers: The parameters.
        into: Where their gradients go.
        rows: Inputs [n, inputs].
        hidden: Hidden activations [n, hidden].
        gradient: Gradient of the outputs [n, outputs].

    """
    torch.mm(gradient.T, hidden, out=into.w2)
    torch.sum(gradient, 0, out=into.b2)
    inner = torch.mm(gradient, layers.w2)
    inner.mul_(hidden.sign())  # 0 or 1
    torch.mm(inner.T, rows, out=into.w1)
    torch.sum(inner, 0, out=into.b1)
