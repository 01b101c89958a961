"""ResNets of BasicBlocks (He et al., CVPR 2016, section 4) whose blocks can be widened and deepened.

Stem (convolution, BatchNorm, ReLU, perhaps a 3x3 max-pool) -> BasicBlocks -> global average pool,
linear. A block is a cell: FedTrans widens its inner channels (those between its two convolutions), and
inserts blocks behind it whose last BatchNorm is zero. What is added from block to block keeps its width, unless whole
blocks widen: then a block writes channels of its own, and shortcuts between different channels become projections.

Fields of the spec: ``input_shape`` (C, H, W), ``num_classes``, ``stem`` (width), ``kernel`` and
``stride`` of the stem, ``pool`` (whether it ends with the max-pool) and ``blocks``, tuples
``(cell_id, hidden, width, stride, projection)``. A block with ``projection`` has a 1x1 convolution
and BatchNorm for a shortcut (option B) and channels of its own, the others write those that they read.
Where ``projection`` is "linear", the shortcut has no BatchNorm, so that it can be an exact identity in training too.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.models.inputs import check_depth, early_halvings
from fedscale_ext.models.layers.parts import ConvBN, SpatialMean, conv, conv_bn, initialise, linear

Shape = tuple[int, int, int]
LINEAR = "linear"  # a projection without BatchNorm


class Block(NamedTuple):
    """One BasicBlock, as it is written in the spec."""

    cell_id: str
    hidden: int
    width: int
    stride: int = 1
    projection: bool | str = False


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut; what comes in went through a ReLU, and so does what goes out."""

    def __init__(self, in_width: int, block: Block) -> None:
        super().__init__()
        self.a = ConvBN(in_width, block.hidden, 3, block.stride)
        self.b = ConvBN(block.hidden, block.width, 3)
        linear = block.projection == LINEAR
        self.shortcut = ConvBN(in_width, block.width, 1, block.stride) if block.projection and not linear else None
        self.adapter = nn.Conv2d(in_width, block.width, 1, block.stride, bias=False) if linear else None

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        residual = self.b(functional.relu(self.a(x)))
        if self.adapter is not None:
            return functional.relu(residual + self.adapter(x))
        return functional.relu(residual + (x if self.shortcut is None else self.shortcut(x)))


class Network(nn.Module):
    """[B, C, H, W] -> [B, classes]."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.stem = ConvBN(spec["input_shape"][0], spec["stem"], spec["kernel"], spec["stride"])
        self.pool = nn.MaxPool2d(3, 2, 1) if spec["pool"] else None
        self.cells, width = nn.ModuleDict(), spec["stem"]
        for block, _, _ in blocks(spec):
            self.cells[block.cell_id] = BasicBlock(width, block)
            width = block.width
        self.mean = SpatialMean()
        self.head = nn.Linear(width, spec["num_classes"])

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = functional.relu(self.stem(x))
        x = x if self.pool is None else self.pool(x)
        for cell in self.cells.values():
            x = cell(x)
        return self.head(self.mean(x))


def blocks(spec: ModelSpec) -> Iterator[tuple[Block, str, str]]:
    """Each block with the channel groups that it reads and writes; UserError where they do not fit together."""
    seen: set[str] = set()
    group, width = "stem", spec["stem"]
    for block in (Block(*fields) for fields in spec["blocks"]):
        if block.cell_id in seen or not block.cell_id.isidentifier():
            raise UserError(f"resnet spec: cell id {block.cell_id!r} is used twice or not a plain name")
        if isinstance(block.projection, str) and block.projection != LINEAR:
            raise UserError(
                f"resnet spec: block {block.cell_id!r} has projection {block.projection!r:.40}; give true, false or "
                f'"{LINEAR}"'
            )
        if not block.projection and (block.width != width or block.stride != 1):
            raise UserError(
                f"resnet spec: block {block.cell_id!r} of width {block.width} and stride {block.stride} "
                f"follows {width} channels; set its projection flag"
            )
        seen.add(block.cell_id)
        target = f"cells.{block.cell_id}" if block.projection else group
        yield block, group, target
        group, width = target, block.width


def make(
    input_shape: Sequence[int],
    num_classes: int,
    stem: int,
    blocks: Sequence[Block],
    kernel: int = 3,
    stride: int = 1,
    pool: bool = False,
) -> ModelSpec:
    """Spec of a network; UserError where its parts, or its depth and the input's size, do not fit together."""
    spec = ModelSpec.make(
        "resnet",
        input_shape=tuple(input_shape),
        num_classes=num_classes,
        stem=stem,
        kernel=kernel,
        stride=stride,
        pool=pool,
        blocks=tuple(tuple(block) for block in blocks),
    )
    _check(spec)
    return spec


def _check(spec: ModelSpec) -> None:
    strides = [spec["stride"], 2 if spec["pool"] else 1, *(block.stride for block, _, _ in blocks(spec))]
    check_depth("resnet of this depth", spec["input_shape"], sum(stride == 2 for stride in strides))


def _stages(widths: Sequence[int], per_stage: int) -> list[Block]:
    """Stages of blocks; each but the first begins with a stride and a projection."""
    stages = [
        Block("", width, width, 2 if stage and not index else 1, bool(stage and not index))
        for stage, width in enumerate(widths)
        for index in range(per_stage)
    ]
    return [block._replace(cell_id=f"c{number}") for number, block in enumerate(stages)]


def resnet18(input_shape: Shape, num_classes: int) -> ModelSpec:
    """ResNet-18: 11,689,512 parameters at 3x224x224 with 1000 classes.

    The stem for photographs is a 7x7 convolution of stride 2 and a max-pool; smaller inputs do without
    the pool (below 97 pixels) and get a 3x3 convolution of stride 1 instead (below 49), as is usual for CIFAR.
    """
    return _photo((64, 128, 256, 512), 2, input_shape, num_classes)


def resnet18_openimage(input_shape: Shape, num_classes: int) -> ModelSpec:
    """FedTrans's "modified smaller ResNet18" for OpenImage (Appendix A; figure only, no widths).

    One block per stage, narrower: 2.7 M parameters with 600 classes, the published storage of 10.6 MB.
    Fewer blocks leave wider channels between them, which growing does not widen.
    """
    return _photo((48, 96, 192, 352), 1, input_shape, num_classes)


def resnet18_speech(input_shape: Shape, num_classes: int) -> ModelSpec:
    """FedTrans's "modified smaller ResNet18" for Speech Commands (Appendix A; figure only, no widths).

    One block per stage: 68k parameters with 35 classes, the published storage of 0.3 MB, and 2.1 MMACs
    at 1x49x40 (the published cost implies 3.3 M on average over grown models). Its stem has stride 2.
    """
    widths = (8, 16, 32, 56)
    return make(input_shape, num_classes, widths[0], _stages(widths, 1), stride=2)


def resnet18_speech_8x(input_shape: Shape, num_classes: int) -> ModelSpec:
    """A wider :func:`resnet18_speech`: eight times its MACs at 1x49x40 (within 1 %), 530k parameters with 35 classes.

    Methods that narrow a model start from it where FedTrans starts from :func:`resnet18_speech`.
    """
    widths = (23, 45, 91, 158)
    return make(input_shape, num_classes, widths[0], _stages(widths, 1), stride=2)


def resnet_tiny(input_shape: Shape, num_classes: int) -> ModelSpec:
    """A ResNet of 4.9 MMACs at 3x32x32, for methods that narrow a model, beside FedorAS on ``cnn_tiny``.

    The dearest path of that space has 5.3 MMACs. At 1/4, 1/2 and 3/4 of its channels the ResNet has 0.3, 1.3 and 2.8
    MMACs, each within its tier's budget.
    """
    widths = (16, 24, 48)
    return make(input_shape, num_classes, widths[0], _stages(widths, 2), stride=2)


def _photo(widths: Sequence[int], per_stage: int, input_shape: Shape, num_classes: int) -> ModelSpec:
    early = early_halvings(input_shape, 2, len(widths) - 1)
    kernel, stride = (7, 2) if early else (3, 1)
    return make(input_shape, num_classes, widths[0], _stages(widths, per_stage), kernel, stride, early == 2)


FIELDS = ("input_shape", "num_classes", "stem", "kernel", "stride", "pool", "blocks")
DRAWN_BY = "outputs"
NAMED = {
    "resnet18": resnet18,
    "resnet18_openimage": resnet18_openimage,
    "resnet18_speech": resnet18_speech,
    "resnet18_speech_8x": resnet18_speech_8x,
    "resnet_tiny": resnet_tiny,
}


def build(spec: ModelSpec) -> nn.Module:
    """Build the network of a spec, initialised as by He et al."""
    _check(spec)
    return initialise(Network(spec))


def _hidden(block: Block) -> str:
    return f"cells.{block.cell_id}.hidden"


def layout(spec: ModelSpec) -> Layout:
    """Return the axes of every tensor; groups are the stem, each block's inner channels and each projection's."""
    axes, group = conv_bn("stem", "input", "stem"), "stem"
    for block, source, group in blocks(spec):
        name = f"cells.{block.cell_id}"
        axes |= conv_bn(f"{name}.a", source, _hidden(block)) | conv_bn(f"{name}.b", _hidden(block), group)
        if block.projection == LINEAR:
            axes |= conv(f"{name}.adapter", source, group)
        elif block.projection:
            axes |= conv_bn(f"{name}.shortcut", source, group)
    return axes | linear("head", group, "classes")


def resized(spec: ModelSpec, widths: Mapping[str, int]) -> ModelSpec:
    """Return the spec with other numbers of channels by group (:func:`fedscale_ext.models.resized`)."""
    new = [
        block._replace(hidden=widths.get(_hidden(block), block.hidden), width=widths.get(target, block.width))
        for block, _, target in blocks(spec)
    ]
    return spec.replace(stem=widths.get("stem", spec["stem"]), blocks=new)


def taps(spec: ModelSpec) -> tuple[str, ...]:
    """The stem (before its ReLU and pool) and the last block of each stage: of a ResNet-18 stem, layer1 ... layer4."""
    all_blocks = [block for block, _, _ in blocks(spec)]
    last = [block for block, behind in pairwise(all_blocks) if behind.projection and behind.projection != LINEAR]
    return ("stem", *(f"cells.{block.cell_id}" for block in (*last, *all_blocks[-1:])))


# --- Functions of a family with cells, for FedTrans's transformer ---------------------------------------


def cell_ids(spec: ModelSpec) -> tuple[str, ...]:
    """Return the ids of the blocks in the order of the forward pass."""
    return tuple(block.cell_id for block, _, _ in blocks(spec))


def _block(spec: ModelSpec, cell_id: str) -> Block:
    return next(block for block, _, _ in blocks(spec) if block.cell_id == cell_id)


def cell_group(spec: ModelSpec, cell_id: str) -> tuple[str, int]:
    """The block's inner channels, and how many there are."""
    block = _block(spec, cell_id)
    return _hidden(block), block.hidden


def widened(spec: ModelSpec, cell_id: str, width: int) -> ModelSpec:
    """Return the spec with ``width`` inner channels of the block."""
    return resized(spec, {_hidden(_block(spec, cell_id)): width})


def output_group(spec: ModelSpec, cell_id: str) -> tuple[str, int]:
    """The channels that the block writes, of its own or the stage's, and how many there are."""
    return next((target, block.width) for block, _, target in blocks(spec) if block.cell_id == cell_id)


def output_widened(spec: ModelSpec, cell_id: str, width: int) -> ModelSpec:
    """Return the spec whose block writes ``width`` channels of its own; the others keep their widths.

    It and the next block get linear projections where their shortcuts were identities. With the present width this
    only adds these, whose matrices are square then.
    """
    new = [block for block, _, _ in blocks(spec)]
    index = [block.cell_id for block in new].index(cell_id)
    for position in range(index, min(index + 2, len(new))):
        new[position] = new[position]._replace(projection=new[position].projection or LINEAR)
    new[index] = new[index]._replace(width=width)
    return spec.replace(blocks=new)


def deepened(spec: ModelSpec, cell_id: str, new_ids: Sequence[str]) -> ModelSpec:
    """Return the spec with blocks ``new_ids`` inserted behind the block, as wide as what it writes."""
    new_blocks: list[Block] = []
    for block, _, _ in blocks(spec):
        new_blocks.append(block)
        if block.cell_id == cell_id:
            new_blocks += [Block(new, block.width, block.width) for new in new_ids]
    return spec.replace(blocks=new_blocks)


def identity_zeros(spec: ModelSpec, cell_id: str) -> list[str]:
    """Return the names of tensors that make an inserted block an exact identity, in training and evaluation, when zero:
    its last BatchNorm's scale and shift (its input is no longer negative anywhere)."""
    return [f"cells.{cell_id}.b.bn.{part}" for part in ("weight", "bias")]
