"""BatchNorm by a batch's own statistics that can be differentiated twice in few passes over its maps.

torch's second derivative of it makes dozens of maps. Per channel, with N values x of mean mu, r = (var + eps)^(-1/2)
and z = (x - mu) r, the gradient of y = gamma z + beta by x is, for a slope s of y,

    gamma r (s - c / N - z e / N),    c = sum s,  e = sum s z, which are those by beta and gamma

and a product of these three with v, g, b is G = gamma r (sum v s - (sum v) c / N - (sum v z) e / N) + g e + b c, whose
gradients by s and by x are combinations of v, s and z with numbers per channel.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


def _gradients(slope: Tensor, x: Tensor, gamma: Tensor, mean: Tensor, r: Tensor, eps: float) -> tuple[Tensor, ...]:
    """Gradients by x, gamma and beta."""
    gradients: tuple[Tensor, ...] = torch.ops.aten.native_batch_norm_backward(
        slope, x, gamma, None, None, mean, r, True, eps, [True, True, True]
    )
    return gradients


class _Norm(Function):
    """x [B, C, H, W], gamma, beta [C] -> y, and the statistics, through which nothing is differentiated."""

    @staticmethod
    def forward(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        return torch.native_batch_norm(x, gamma, beta, None, None, True, 0.0, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, gamma, _, ctx.eps = inputs
        _, mean, r = output
        ctx.mark_non_differentiable(mean, r)
        ctx.save_for_backward(x, gamma, mean, r)

    @staticmethod
    def backward(ctx: Any, slope: Tensor, *_: Any) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return (*_Gradients.apply(slope, *ctx.saved_tensors, ctx.eps), None)


class _Gradients(Function):
    """The derivatives of :class:`_Norm`; theirs are not differentiated any more."""

    @staticmethod
    def forward(slope: Tensor, x: Tensor, gamma: Tensor, mean: Tensor, r: Tensor, eps: float) -> tuple[Tensor, ...]:
        return _gradients(slope, x, gamma, mean, r, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.eps = inputs
        ctx.save_for_backward(*tensors, *output[1:])

    @staticmethod
    def backward(ctx: Any, v: Tensor, g: Tensor, b: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        slope, x, gamma, mean, r, e, c = ctx.saved_tensors
        count = x.numel() / x.shape[1]
        by_slope, v_z, v_sum = _gradients(v, x, gamma, mean, r, ctx.eps)
        of_z = r * g
        by_slope = by_slope.addcmul(x, _wide(of_z)).add_(_wide(b - mean * of_z))
        if not (ctx.needs_input_grad[1] or ctx.needs_input_grad[2]):
            return by_slope, None, None, None, None, None
        inner = (v * slope).sum((0, 2, 3)) - (v_sum * c + v_z * e) / count
        of_v, of_slope = -gamma * r * e / count, g - gamma * r * v_z / count  # G by z, where sums stay as they are
        by_z, by_z_z = (of_v * v_sum + of_slope * c) / count, (of_v * v_z + of_slope * e) / count
        of_x = -r * r * (gamma * inner * r / count + by_z_z)
        by_x = (v * _wide(r * of_v)).addcmul_(slope, _wide(r * of_slope)).addcmul_(x, _wide(of_x))
        by_x.add_(_wide(-r * by_z - mean * of_x))
        return by_slope, by_x, r * inner, None, None, None


def _wide(each: Tensor) -> Tensor:
    return each[:, None, None]


def batch_norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Normalise maps x [B, C, H, W] as :func:`torch.nn.functional.batch_norm` in training; running statistics stay.

    Args:
        x: Maps [B, C, H, W].
        gamma: Scales [C].
        beta: Shifts [C].
        eps: Added to the variances.

    Returns:
        Maps [B, C, H, W].

    """
    y: Tensor = _Norm.apply(x, gamma, beta, eps)[0]
    return y
