"""Grouped convolutions that can be differentiated twice at the price of ordinary ones.

torch's second derivative of a grouped convolution runs through its groups one after another. A convolution F(x, w)
and its two gradients X(g, w) and W(x, g) are bilinear maps whose derivatives are these three again, and for each of
them there is one fast kernel.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.modules.utils import _pair


class _Settings(NamedTuple):
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int


def _kernel(g: Tensor, x: Tensor, w: Tensor, settings: _Settings, operand: int) -> Tensor:
    """The gradient by x (``operand`` 0) or by w (1) of <g, F(x, w)>; the other operand tells only its shape."""
    stride, padding, dilation, groups = settings
    mask = [operand == 0, operand == 1, False]
    gradient: Tensor = torch.ops.aten.convolution_backward(
        g, x, w, None, stride, padding, dilation, False, [0, 0], groups, mask
    )[operand]
    return gradient


class _Bilinear(Function):
    """Base of the three maps: the tensors that they save for derivatives, which are made of each other."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        first, second, *_ = inputs
        ctx.save_for_backward(first, second)
        ctx.settings = inputs[-1]


class _F(_Bilinear):
    """x, w -> F(x, w)."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, settings: _Settings) -> Tensor:
        stride, padding, dilation, groups = settings
        return torch.ops.aten.convolution(x, w, None, stride, padding, dilation, False, [0, 0], groups)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, w = ctx.saved_tensors
        by_x = _X.apply(g, w, x, ctx.settings) if ctx.needs_input_grad[0] else None
        return by_x, _W.apply(x, g, w, ctx.settings) if ctx.needs_input_grad[1] else None, None


class _X(_Bilinear):
    """g, w -> X(g, w), of the shape of ``x``."""

    @staticmethod
    def forward(g: Tensor, w: Tensor, x: Tensor, settings: _Settings) -> Tensor:
        return _kernel(g, x, w, settings, 0)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        g, w = ctx.saved_tensors
        by_g = _F.apply(u, w, ctx.settings) if ctx.needs_input_grad[0] else None
        return by_g, _W.apply(u, g, w, ctx.settings) if ctx.needs_input_grad[1] else None, None, None


class _W(_Bilinear):
    """x, g -> W(x, g), of the shape of ``w``."""

    @staticmethod
    def forward(x: Tensor, g: Tensor, w: Tensor, settings: _Settings) -> Tensor:
        return _kernel(g, x, w, settings, 1)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, g = ctx.saved_tensors
        by_x = _X.apply(g, u, x, ctx.settings) if ctx.needs_input_grad[0] else None
        return by_x, _F.apply(x, u, ctx.settings) if ctx.needs_input_grad[1] else None, None, None


def grouped_conv2d(x: Tensor, w: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
    """Convolve as :func:`torch.nn.functional.conv2d`.

    Args:
        x: Maps [B, C, H, W].
        w: Kernels [O, C / groups, kh, kw].
        bias: [O], or None.
        settings: Stride, padding and dilation of one number or two each, and the number of groups.

    Returns:
        Maps [B, O, H', W'].

    """
    stride, padding, dilation, groups = settings
    output = _F.apply(x, w, _Settings(_pair(stride), _pair(padding), _pair(dilation), groups))
    return output if bias is None else output + bias[:, None, None]
