"""Layers that families share, and the layouts of their tensors.

A function that returns a layout takes the layer's ``name`` and the channel groups that it reads (``source``) and writes
(``target``).
"""

from torch import Tensor, nn

from fedscale_ext.core.model_spec import Axis, Layout

_KERNEL = (None, None)


class ConvBN(nn.Module):
    """Convolution without bias (padding keeps the size at stride 1), then BatchNorm."""

    def __init__(self, in_width: int, width: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_width, width, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.bn(self.conv(x))


class ChannelScale(nn.Module):
    """Maps [B, C, H, W] times one factor per sample and channel [B, C]."""

    def forward(self, x: Tensor, factors: Tensor) -> Tensor:  # noqa: D102
        return x * factors[:, :, None, None]


class SpatialMean(nn.Module):
    """The mean over height and width: [B, C, H, W] -> [B, C].

    Its backward pass keeps the memory order of the input, because the gradient of a sum is a view. The gradient of
    ``x.mean((2, 3))`` would be a contiguous tensor. The layer before would then mix two memory orders, if the network
    runs in channels_last.
    """

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.sum((2, 3)) / (x.shape[2] * x.shape[3])


def initialise(module: nn.Module) -> nn.Module:
    """Initialise the convolutions as He et al. (normal, variance 2 / fan-out), and return the module."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
    return module


def conv(name: str, source: str, target: str, bias: bool = False) -> Layout:
    """Return the layout of a Conv2d of one group."""
    axes: Layout = {f"{name}.weight": (Axis(target, "out"), Axis(source, "in"), *_KERNEL)}
    return axes | ({f"{name}.bias": (Axis(target, "out"),)} if bias else {})


def norm(name: str, group: str) -> Layout:
    """Return the layout of a BatchNorm2d."""
    vector = (Axis(group, "out"),)
    names = ("weight", "bias", "running_mean", "running_var")
    return {**{f"{name}.{part}": vector for part in names}, f"{name}.num_batches_tracked": ()}


def conv_bn(name: str, source: str, target: str) -> Layout:
    """Return the layout of a :class:`ConvBN` of one group."""
    return conv(f"{name}.conv", source, target) | norm(f"{name}.bn", target)


def depthwise_bn(name: str, group: str) -> Layout:
    """Return the layout of a :class:`ConvBN` whose convolution is depthwise, [C, 1, k, k]."""
    return {f"{name}.conv.weight": (Axis(group, "out"), None, *_KERNEL)} | norm(f"{name}.bn", group)


def linear(name: str, source: str, target: str, reads: int = 1, writes: int = 1) -> Layout:
    """Return the layout of a Linear with bias.

    Args:
        name: Name of the layer.
        source: Channel group that it reads.
        target: Channel group that it writes.
        reads: Inputs per channel of ``source``.
        writes: Outputs per channel of ``target``.

    """
    out = Axis(target, "out", writes)
    return {f"{name}.weight": (out, Axis(source, "in", reads)), f"{name}.bias": (out,)}
