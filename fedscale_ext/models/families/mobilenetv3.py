"""MobileNetV3 (Howard et al., ICCV 2019): inverted residual blocks that can be widened and deepened.

Stem -> blocks -> head (:mod:`~fedscale_ext.models.families.mobilenetv3_modules`). A block is a cell: FedTrans
widens its expanded channels, the depthwise convolution and the squeeze-excite among them, and inserts
blocks behind it whose last BatchNorm is zero. Unlike the published network it has no dropout before the
last layer, so that its clients can train side by side, and BatchNorm has torch's momentum (0.1), for
running statistics must follow a few local steps.

Fields of the spec: ``input_shape`` (C, H, W), ``num_classes``, ``stem`` (width), ``stride`` (of the
stem), ``blocks`` (tuples of :class:`Block`'s fields), ``last`` (width of the last convolution),
``hidden`` (of the layer before the classes) and ``dense``: whether the depthwise convolutions read all
channels, as methods want them that slice channels (:func:`fedscale_ext.models.layers.dense.dense`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from torch import nn

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.models.families.mobilenetv3_modules import ACTIVATIONS, Block, Network
from fedscale_ext.models.inputs import check_depth, early_halvings
from fedscale_ext.models.layers.parts import ConvBN, conv, conv_bn, depthwise_bn, initialise, linear

# Table 2 of the paper: kernel, expanded, out, squeeze-excite, activation, stride
_SMALL = (
    (3, 16, 16, True, "relu", 2),
    (3, 72, 24, False, "relu", 2),
    (3, 88, 24, False, "relu", 1),
    (5, 96, 40, True, "hardswish", 2),
    (5, 240, 40, True, "hardswish", 1),
    (5, 240, 40, True, "hardswish", 1),
    (5, 120, 48, True, "hardswish", 1),
    (5, 144, 48, True, "hardswish", 1),
    (5, 288, 96, True, "hardswish", 2),
    (5, 576, 96, True, "hardswish", 1),
    (5, 576, 96, True, "hardswish", 1),
)


class Groups(NamedTuple):
    """The channel groups that a block reads, makes inside and writes."""

    source: str
    hidden: str
    target: str


def blocks(spec: ModelSpec) -> Iterator[tuple[Block, Groups]]:
    """Each block with its channel groups; UserError where they do not fit together."""
    seen: set[str] = set()
    group, width = "stem", spec["stem"]
    for block in (Block(*fields) for fields in spec["blocks"]):
        name = f"cells.{block.cell_id}"
        if block.cell_id in seen or not block.cell_id.isidentifier():
            raise UserError(f"{spec.family} spec: cell id {block.cell_id!r} is used twice or not a plain name")
        if block.activation not in ACTIVATIONS or block.expand not in ("conv", "none", "adapter"):
            raise UserError(
                f"{spec.family} spec: block {block.cell_id!r} has activation {block.activation!r} and expand "
                f"{block.expand!r}; use {' or '.join(ACTIVATIONS)}, and conv, none or adapter"
            )
        if block.residual and (block.width != width or block.stride != 1):
            raise UserError(f"{spec.family} spec: block {block.cell_id!r} cannot add its input to its output")
        if block.expand == "none" and block.hidden != width:
            raise UserError(
                f"{spec.family} spec: block {block.cell_id!r} expands {width} channels without a convolution"
            )
        seen.add(block.cell_id)
        hidden = group if block.expand == "none" else f"{name}.hidden"
        yield block, Groups(group, hidden, group if block.residual else name)
        group, width = group if block.residual else name, block.width


def check_strides(spec: ModelSpec) -> None:
    """Raise UserError if the blocks do not fit together, or halve the input too often."""
    strides = [spec["stride"], *(block.stride for block, _ in blocks(spec))]
    check_depth(f"{spec.family} of this depth", spec["input_shape"], sum(stride == 2 for stride in strides))


def small(input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """MobileNetV3-small: 1,528,106 parameters at 3x32x32 with 10 classes.

    Small inputs get stride 1 first in the first block (below 97 pixels), then in the stem too (below 49).
    """
    early = early_halvings(input_shape, 2, 3)
    layers, in_width = [], 16
    for number, (kernel, hidden, width, excite, activation, stride) in enumerate(_SMALL):
        stride = 1 if number == 0 and early < 2 else stride
        expand = "none" if hidden == in_width else "conv"
        residual = stride == 1 and width == in_width
        squeeze = _eighths(hidden / 4) if excite else 0
        layers.append(Block(f"c{number}", kernel, hidden, width, squeeze, activation, stride, expand, residual))
        in_width = width
    return make(input_shape, num_classes, 16, 2 if early else 1, layers, 576, 1024)


def _eighths(width: float) -> int:
    """The multiple of 8 that is nearest, at least 8 and not more than a tenth below."""
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * width else rounded


def make(
    input_shape: Sequence[int],
    num_classes: int,
    stem: int,
    stride: int,
    blocks: Sequence[Block],
    last: int,
    hidden: int,
    dense: bool = False,
) -> ModelSpec:
    """Spec of a network; UserError where its parts, or its depth and the input's size, do not fit together."""
    spec = ModelSpec.make(
        "mobilenetv3",
        input_shape=tuple(input_shape),
        num_classes=num_classes,
        stem=stem,
        stride=stride,
        blocks=tuple(tuple(block) for block in blocks),
        last=last,
        hidden=hidden,
        dense=dense,
    )
    check_strides(spec)
    return spec


FIELDS = ("input_shape", "num_classes", "stem", "stride", "blocks", "last", "hidden", "dense")
DRAWN_BY = "outputs"
NAMED = {"mobilenetv3_small": small}


def build(spec: ModelSpec) -> nn.Module:
    """Build the network of a spec; convolutions initialised as by He et al."""
    check_strides(spec)
    parts = [block for block, _ in blocks(spec)]
    network = Network(ConvBN(spec["input_shape"][0], spec["stem"], 3, spec["stride"]), parts, spec["dense"])
    network.finish(spec["last"], spec["hidden"], spec["num_classes"])
    return initialise(network)


def layout(spec: ModelSpec) -> Layout:
    """Return the axes of every tensor; a depthwise convolution has its channels along the first axis only."""
    axes, group = trunk_layout(spec, _conv_inside if spec["dense"] else depthwise_bn)
    axes |= conv_bn("head.last", group, "last")
    return axes | linear("head.hidden", "last", "hidden") | linear("head.linear", "hidden", "classes")


def trunk_layout(spec: ModelSpec, spatial: Callable[[str, str], Layout] = depthwise_bn) -> tuple[Layout, str]:
    """Return the axes of the tensors of stem and blocks, and the group of channels that the last block writes."""
    axes, group = conv_bn("stem", "input", "stem"), "stem"
    for block, (source, hidden, group) in blocks(spec):
        name = f"cells.{block.cell_id}"
        if block.expand == "conv":
            axes |= conv_bn(f"{name}.expand", source, hidden)
        elif block.expand == "adapter":
            axes |= conv(f"{name}.adapter", source, hidden)
        axes |= spatial(f"{name}.depthwise", hidden)
        if block.squeeze:
            axes |= linear(f"{name}.excite.down", hidden, f"{name}.squeeze")
            axes |= linear(f"{name}.excite.up", f"{name}.squeeze", hidden)
        axes |= conv_bn(f"{name}.project", hidden, group)
    return axes, group


def _conv_inside(name: str, group: str) -> Layout:
    return conv_bn(name, group, group)


def resized(spec: ModelSpec, widths: Mapping[str, int]) -> ModelSpec:
    """Return the spec with other numbers of channels by group (:func:`fedscale_ext.models.resized`)."""
    new = [
        block._replace(
            hidden=widths.get(groups.hidden, block.hidden),
            width=widths.get(groups.target, block.width),
            squeeze=widths.get(f"cells.{block.cell_id}.squeeze", block.squeeze),
        )
        for block, groups in blocks(spec)
    ]
    rest = {name: width for name, width in widths.items() if name in ("stem", "last", "hidden")}
    return spec.replace(blocks=new, **rest)


def dense(spec: ModelSpec) -> ModelSpec:
    """Return the spec whose depthwise convolutions read all channels."""
    return spec.replace(dense=True)


def taps(spec: ModelSpec) -> tuple[str, ...]:
    """The stem and the last block before each stride, and at the end."""
    all_blocks = [block for block, _ in blocks(spec)]
    last = [block for block, behind in pairwise(all_blocks) if behind.stride != 1]
    return ("stem", *(f"cells.{block.cell_id}" for block in (*last, *all_blocks[-1:])))


# --- Functions of a family with cells, for FedTrans's transformer ---------------------------------------


def cell_ids(spec: ModelSpec) -> tuple[str, ...]:
    """Return the ids of the blocks in the order of the forward pass."""
    return tuple(block.cell_id for block, _ in blocks(spec))


def cell_group(spec: ModelSpec, cell_id: str) -> tuple[str, int]:
    """The block's expanded channels, and how many there are."""
    return next((groups.hidden, block.hidden) for block, groups in blocks(spec) if block.cell_id == cell_id)


def widened(spec: ModelSpec, cell_id: str, width: int) -> ModelSpec:
    """Return the spec with ``width`` expanded channels of the block; one that did not expand gets an adapter."""
    new = [
        block._replace(hidden=width, expand="adapter" if block.expand == "none" else block.expand)
        if block.cell_id == cell_id
        else block
        for block, _ in blocks(spec)
    ]
    return spec.replace(blocks=new)


def deepened(spec: ModelSpec, cell_id: str, new_ids: Sequence[str]) -> ModelSpec:
    """Return the spec with blocks ``new_ids`` inserted behind the block: like it, with stride 1 and residual."""
    new_blocks: list[Block] = []
    for block, _ in blocks(spec):
        new_blocks.append(block)
        if block.cell_id == cell_id:
            like = block._replace(stride=1, expand="conv", residual=True)
            new_blocks += [like._replace(cell_id=new) for new in new_ids]
    return spec.replace(blocks=new_blocks)


def identity_zeros(spec: ModelSpec, cell_id: str) -> list[str]:
    """Return the names of tensors that make an inserted block an exact identity, in training and evaluation, when zero:
    its last BatchNorm's scale and shift."""
    return [f"cells.{cell_id}.project.bn.{part}" for part in ("weight", "bias")]
