"""A way around an error of oneDNN in the gradient of strided 1x1 convolutions with few input channels.

For the gradient of such a convolution's weight, oneDNN first copies the pixels that the stride keeps to a buffer. If
the input is in channels_last and has fewer channels than a vector register has floats, it writes past the end of that
buffer (https://github.com/uxlfoundation/oneDNN/issues/6035; oneDNN 3.12, which torch 2.13 contains). The process then
crashes or, with more than one thread, the gradient is wrong. Here the pixels are selected before the convolution, which
thus has stride 1. The result is the same up to rounding.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

_BLOCK = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8  # floats of a vector register


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, ...],
    padding: tuple[int, ...] | str,
    dilation: tuple[int, ...],
    groups: int,
) -> Tensor:
    """Convolve as :func:`torch.nn.functional.conv2d`, with a gradient that is right for every shape.

    Args:
        x: Maps [B, C, H, W].
        weight: [out, C / groups, h, w].
        bias: [out], or None.
        stride: Along height and width.
        padding: Along height and width, or "same" or "valid".
        dilation: Along height and width.
        groups: Number of groups.

    Returns:
        Maps [B, out, H', W'].

    """
    if groups == 1 and stride != (1, 1) and _overruns(x, weight, stride, padding):
        x, stride = x[:, :, :: stride[0], :: stride[1]], (1, 1)
    return functional.conv2d(x, weight, bias, stride, padding, dilation, groups)


def guard(module: nn.Module) -> None:
    """Let the convolutions of a module that may be affected run by :func:`conv2d`; their class stays torch's own."""
    for part in module.modules():
        if type(part) is nn.Conv2d and part.padding_mode == "zeros" and _may_overrun(part):
            part._conv_forward = partial(_forward, part)  # type: ignore[method-assign]


def _forward(conv: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return conv2d(x, weight, bias, conv.stride, conv.padding, conv.dilation, conv.groups)


def _may_overrun(conv: nn.Conv2d) -> bool:
    strided, few = conv.stride != (1, 1), conv.in_channels < _BLOCK
    return strided and few and conv.kernel_size == (1, 1) and conv.groups == 1


def _overruns(x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, ...] | str) -> bool:
    """Return whether oneDNN would copy the pixels of x, and to a buffer that is too small."""
    height, width = x.shape[2:]
    few = weight.shape[2:] == (1, 1) and weight.shape[1] < _BLOCK
    # oneDNN has other kernels for a size that the stride does not divide, and torch for other dtypes
    whole = height % stride[0] == 0 and width % stride[1] == 0 and padding in ((0, 0), "valid")
    # torch converts the input to channels_last if the weight is in that format; the channels are then adjacent
    channels_last = x.stride(1) == 1 or weight.stride(3) != 1
    return few and whole and channels_last and x.device.type == "cpu" and x.dtype == torch.float32
