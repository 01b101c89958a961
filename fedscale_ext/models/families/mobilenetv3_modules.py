"""The torch modules of :mod:`fedscale_ext.models.families.mobilenetv3`."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.models.layers.parts import ChannelScale, ConvBN, SpatialMean

ACTIVATIONS = {"relu": functional.relu, "hardswish": functional.hardswish, "relu6": functional.relu6}


class Block(NamedTuple):
    """One inverted residual block, as it is written in the spec.

    ``expand``: "conv" (1x1 convolution, BatchNorm, activation), "none" (the depthwise convolution reads the
    input), or "adapter" (a plain 1x1 convolution, where "none" was widened). ``squeeze``: width of the
    squeeze-excite layer, 0 for none. ``residual``: whether the input is added to the output.
    """

    cell_id: str
    kernel: int
    hidden: int
    width: int
    squeeze: int
    activation: str
    stride: int
    expand: str
    residual: bool


class SqueezeExcite(nn.Module):
    """Each channel times a factor that two linear layers make of all channels' means (Hu et al., CVPR 2018)."""

    def __init__(self, width: int, squeeze: int) -> None:
        super().__init__()
        self.mean, self.scale = SpatialMean(), ChannelScale()
        self.down, self.up = nn.Linear(width, squeeze), nn.Linear(squeeze, width)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.scale(x, functional.hardsigmoid(self.up(functional.relu(self.down(self.mean(x))))))


class InvertedResidual(nn.Module):
    """Expand, depthwise convolution, squeeze-excite, project."""

    def __init__(self, in_width: int, block: Block, dense: bool) -> None:
        super().__init__()
        self.activation, self.residual = ACTIVATIONS[block.activation], block.residual
        self.expand = ConvBN(in_width, block.hidden, 1) if block.expand == "conv" else None
        self.adapter = nn.Conv2d(in_width, block.hidden, 1, bias=False) if block.expand == "adapter" else None
        self.depthwise = ConvBN(block.hidden, block.hidden, block.kernel, block.stride, 1 if dense else block.hidden)
        self.excite = SqueezeExcite(block.hidden, block.squeeze) if block.squeeze else None
        self.project = ConvBN(block.hidden, block.width, 1)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        y = x if self.adapter is None else self.adapter(x)
        y = y if self.expand is None else self.activation(self.expand(y))
        y = self.activation(self.depthwise(y))
        y = self.project(y if self.excite is None else self.excite(y))
        return x + y if self.residual else y


class Head(nn.Module):
    """1x1 convolution, global average pool, two linear layers (the paper's "efficient last stage")."""

    def __init__(self, in_width: int, last: int, hidden: int, num_classes: int) -> None:
        super().__init__()
        self.last, self.mean = ConvBN(in_width, last, 1), SpatialMean()
        self.hidden, self.linear = nn.Linear(last, hidden), nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        features = self.mean(functional.hardswish(self.last(x)))
        return self.linear(functional.hardswish(self.hidden(features)))


class Network(nn.Module):
    """[B, C, H, W] -> [B, classes]."""

    def __init__(self, stem: ConvBN, blocks: Sequence[Block], dense: bool) -> None:
        super().__init__()
        self.stem, self.cells, width = stem, nn.ModuleDict(), stem.conv.out_channels
        for block in blocks:
            self.cells[block.cell_id] = InvertedResidual(width, block, dense)
            width = block.width
        self.width = width

    def finish(self, last: int, hidden: int, num_classes: int) -> None:
        """Add the head behind the last block."""
        self.head = Head(self.width, last, hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = functional.hardswish(self.stem(x))
        for cell in self.cells.values():
            x = cell(x)
        return self.head(x)
