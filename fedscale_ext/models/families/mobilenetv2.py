"""MobileNetV2 (Sandler et al., CVPR 2018): inverted residual blocks with ReLU6, without MobileNetV3's squeeze-excite.

The blocks are :mod:`fedscale_ext.models.families.mobilenetv3`'s. As there, no dropout before the last layer, so that
its clients can train side by side. Fields of the spec: ``input_shape`` (C, H, W), ``num_classes``, ``stem`` (width),
``stride`` (of the stem), ``blocks`` (tuples of ``Block``'s fields) and ``last`` (width of the last convolution).
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.models.families import mobilenetv3
from fedscale_ext.models.families.mobilenetv3_modules import Block, InvertedResidual
from fedscale_ext.models.inputs import early_halvings
from fedscale_ext.models.layers.parts import ConvBN, SpatialMean, conv_bn, initialise, linear

# Table 2 of the paper: expansion, channels, repetitions, stride of the first
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class Network(nn.Module):
    """[B, C, H, W] -> [B, classes]."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        width = spec["stem"]
        self.stem = ConvBN(spec["input_shape"][0], width, 3, spec["stride"])
        self.cells = nn.ModuleDict()
        for block, _ in mobilenetv3.blocks(spec):
            self.cells[block.cell_id] = InvertedResidual(width, block, dense=False)
            width = block.width
        self.last, self.mean = ConvBN(width, spec["last"], 1), SpatialMean()
        self.head = nn.Linear(spec["last"], spec["num_classes"])

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = functional.relu6(self.stem(x))
        for cell in self.cells.values():
            x = cell(x)
        return self.head(self.mean(functional.relu6(self.last(x))))


def mobilenetv2(input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """MobileNetV2: 3,504,872 parameters at 3x224x224 with 1000 classes, 2,236,682 at 3x32x32 with 10.

    Small inputs get stride 1 first in the first strided block (below 97 pixels), then in the stem too (below 49).
    """
    early = early_halvings(input_shape, 2, 3)
    layers: list[Block] = []
    in_width, strided = 32, 0
    for expansion, width, repetitions, first in _STAGES:
        for index in range(repetitions):
            stride = first if index == 0 else 1
            strided += stride == 2
            stride = 1 if strided == 1 and early < 2 else stride
            expand, residual = "none" if expansion == 1 else "conv", stride == 1 and width == in_width
            hidden, name = expansion * in_width, f"c{len(layers)}"
            layers.append(Block(name, 3, hidden, width, 0, "relu6", stride, expand, residual))
            in_width = width
    return make(input_shape, num_classes, 32, 2 if early else 1, layers, 1280)


def mobilenetv2_thin(input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """Five blocks of at most 24 channels, Moss's Medium type at small scale: 12,858 parameters at 3x32x32 with 10."""
    layers = [
        Block("c0", 3, 8, 8, 0, "relu6", 1, "none", True),
        Block("c1", 3, 24, 16, 0, "relu6", 2, "conv", False),
        Block("c2", 3, 48, 16, 0, "relu6", 1, "conv", True),
        Block("c3", 3, 48, 24, 0, "relu6", 2, "conv", False),
        Block("c4", 3, 72, 24, 0, "relu6", 1, "conv", True),
    ]
    return make(input_shape, num_classes, 8, 2, layers, 64)


def make(
    input_shape: Sequence[int], num_classes: int, stem: int, stride: int, blocks: Sequence[Block], last: int
) -> ModelSpec:
    """Spec of a network; UserError where its parts, or its depth and the input's size, do not fit together."""
    spec = ModelSpec.make(
        "mobilenetv2",
        input_shape=tuple(input_shape),
        num_classes=num_classes,
        stem=stem,
        stride=stride,
        blocks=tuple(tuple(block) for block in blocks),
        last=last,
    )
    mobilenetv3.check_strides(spec)
    return spec


FIELDS = ("input_shape", "num_classes", "stem", "stride", "blocks", "last")
DRAWN_BY = "outputs"
NAMED = {"mobilenetv2": mobilenetv2, "mobilenetv2_thin": mobilenetv2_thin}
resized, taps = mobilenetv3.resized, mobilenetv3.taps


def build(spec: ModelSpec) -> nn.Module:
    """Build the network of a spec; convolutions initialised as by He et al."""
    mobilenetv3.check_strides(spec)
    return initialise(Network(spec))


def layout(spec: ModelSpec) -> Layout:
    """Return the axes of every tensor; a depthwise convolution has its channels along the first axis only."""
    axes, group = mobilenetv3.trunk_layout(spec)
    return axes | conv_bn("last", group, "last") | linear("head", "last", "classes")
