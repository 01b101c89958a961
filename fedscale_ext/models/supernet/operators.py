"""Modules of convolutional supernets: candidate operators, stems and reductions (FedorAS, section 3.1).

The public code names more than the paper's text: every convolution is followed by BatchNorm and ReLU, the last one
before a residual sum too; the squeeze-excite layers are as wide as what they scale.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from fedscale_ext.models.layers.parts import ChannelScale, SpatialMean


class LayerShape(NamedTuple):
    """Input and output of a searchable layer.

    Attributes:
        shape: Shape of a sample's input, [C, H, W] or [T, C].
        width: Number of output channels.

    """

    shape: tuple[int, ...]
    width: int


class ConvBNReLU(nn.Module):
    """Convolution without bias, BatchNorm, ReLU."""

    def __init__(
        self, in_width: int, width: int, kernel: int, stride: int = 1, groups: int = 1, padding: int | None = None
    ) -> None:
        super().__init__()
        padding = kernel // 2 if padding is None else padding
        self.conv = nn.Conv2d(in_width, width, kernel, stride, padding, groups=groups, bias=False)
        self.bn, self.relu = nn.BatchNorm2d(width), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.relu(self.bn(self.conv(x)))


class SqueezeExcite(nn.Module):
    """Each channel times a factor that two linear layers, as wide as the input, make of all channels' means."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean, self.scale, self.relu, self.sigmoid = SpatialMean(), ChannelScale(), nn.ReLU(), nn.Sigmoid()
        self.down, self.up = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.scale(x, self.sigmoid(self.up(self.relu(self.down(self.mean(x))))))


class DSConv(nn.Module):
    """Grouped convolution to ``hidden`` channels, in as many groups as its narrower side has, then 1x1; residual."""

    def __init__(self, width: int, kernel: int, hidden: int) -> None:
        super().__init__()
        self.grouped = ConvBNReLU(width, hidden, kernel, groups=min(width, hidden))
        self.project = ConvBNReLU(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x + self.project(self.grouped(x))


class MBConv(nn.Module):
    """Convolution to ``hidden`` channels, squeeze-excite, 1x1; residual."""

    def __init__(self, width: int, kernel: int, hidden: int) -> None:
        super().__init__()
        self.expand, self.excite = ConvBNReLU(width, hidden, kernel), SqueezeExcite(hidden)
        self.project = ConvBNReLU(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x + self.project(self.excite(self.expand(x)))


class Reduction(nn.Module):
    """Depthwise 3x3 and 1x1, beside them another way; their sum has other channels and, at stride 2, half the sides.

    The other way is one convolution, 2x2 at stride 2 (odd sides get a row or column of zeros) and 3x3 at stride 1; with
    ``separable`` it is depthwise 3x3 and 1x1 too.
    """

    def __init__(self, shape: tuple[int, ...], width: int, stride: int, separable: bool) -> None:
        super().__init__()
        channels, height, broad = shape
        self.depthwise = ConvBNReLU(channels, channels, 3, stride, groups=channels)
        self.project = ConvBNReLU(channels, width, 1)
        self.pad = nn.ZeroPad2d((0, broad % 2, 0, height % 2)) if stride == 2 and not separable else nn.Identity()
        if separable:
            self.beside: nn.Module = nn.Sequential(
                ConvBNReLU(channels, channels, 3, stride, groups=channels), ConvBNReLU(channels, width, 1)
            )
        elif stride == 2:
            self.beside = ConvBNReLU(channels, width, 2, 2, padding=0)
        else:
            self.beside = ConvBNReLU(channels, width, 3, stride)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.project(self.depthwise(x)) + self.beside(self.pad(x))


class PoolReduction(nn.Module):
    """Mean of 3x3 pixels, then 1x1."""

    def __init__(self, shape: tuple[int, ...], width: int, stride: int) -> None:
        super().__init__()
        self.pool, self.project = nn.AvgPool2d(3, stride, 1), ConvBNReLU(shape[0], width, 1)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.project(self.pool(x))


Maker = Callable[[LayerShape], nn.Module]

REDUCTIONS: dict[str, Callable[[tuple[int, ...], int, int], nn.Module]] = {
    "conv": lambda shape, width, stride: Reduction(shape, width, stride, separable=False),
    "separable": lambda shape, width, stride: Reduction(shape, width, stride, separable=True),
    "pool": PoolReduction,
}

_KERNELS = (1, 3, 5)
_EXPANSIONS = {"_half": 0.5, "": 1.0, "_double": 2.0}


def _conv(kernel: int) -> Maker:
    return lambda layer: ConvBNReLU(layer.shape[0], layer.width, kernel)


def _bottleneck(kind: type[DSConv] | type[MBConv], kernel: int, expansion: float) -> Maker:
    return lambda layer: kind(layer.width, kernel, int(layer.width * expansion))


OPERATORS: dict[str, Maker] = {
    **{f"conv{kernel}": _conv(kernel) for kernel in _KERNELS},
    **{
        f"{name}{kernel}{suffix}": _bottleneck(kind, kernel, expansion)
        for name, kind in (("dsconv", DSConv), ("mbconv", MBConv))
        for kernel in _KERNELS
        for suffix, expansion in _EXPANSIONS.items()
    },
    "identity": lambda layer: nn.Identity(),
}
