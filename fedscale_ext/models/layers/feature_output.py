"""Modules by which a network's output also tells of its features, the inputs of its last linear layer."""

import torch
from torch import Tensor, nn

from fedscale_ext.core.errors import UserError
from fedscale_ext.models.multi_exit.modules import Exit


class LinearWithInput(nn.Linear):
    """In training [..., in] -> outputs and then inputs [..., out + in]; in evaluation a linear layer.

    With ``always``, evaluation gives the inputs, too.
    """

    always: bool

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        output = super().forward(x)
        return torch.cat([output, x], -1) if self.training or self.always else output


class Columns(nn.Module):
    """Entries ``begin`` to ``end`` of the last axis."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__()
        self.begin, self.end = begin, end

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x[..., self.begin : self.end]


class SquaredError(nn.Module):
    """Mean squared difference of features [..., F] of two networks, once for each class -> [..., classes].

    It stands beside logits. A mask of logits leaves that of the sample's class as it is.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, one: Tensor, other: Tensor) -> Tensor:  # noqa: D102
        return (one - other).square().mean(-1, keepdim=True).expand(*one.shape[:-1], self.classes)


def with_input(model: nn.Module, layer: str, *, always: bool = False) -> None:
    """Let a network's last linear layer add its input to its output, in training; names of tensors stay.

    Args:
        model: The network.
        layer: Name of the layer.
        always: Whether it does so in evaluation, too.

    Raises:
        UserError: The network has several exits, or a last layer that computes in a way of its own.

    """
    last = model.get_submodule(layer)
    if sum(isinstance(part, Exit) for part in model.modules()) > 1:
        raise UserError("a model has several exits, and this method takes features of one; choose another model")
    if type(last) is not nn.Linear:
        raise UserError(
            f"the last layer {layer} of a model is a {type(last).__name__}, and this method needs torch's own linear "
            "layer there; choose another model"
        )
    last.__class__ = LinearWithInput
    last.always = always  # type: ignore[assignment]
