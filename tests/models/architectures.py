"""Random specs of every family, for property tests."""

from collections.abc import Callable

from hypothesis import strategies as st

from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.families import custom_module as custom
from fedscale_ext.models.families import mobilenetv2, mobilenetv3, resnet, vit
from fedscale_ext.models.families.genotype import EDGES, OPERATIONS, arch_string
from fedscale_ext.models.families.nasbench201 import Cell, make, widened
from fedscale_ext.models.multi_exit import family as multi_exit

Draw = Callable[[st.SearchStrategy[int]], int]

SHAPE, CLASSES = (2, 10, 12), 4
widths, flag = st.integers(1, 6), st.integers(0, 1)


@st.composite
def cnn(draw: Draw) -> ModelSpec:
    first, second, hidden = draw(widths), draw(widths), draw(widths)
    fields = {"widths": (first, second), "kernels": (3, 5), "hidden": hidden}
    return ModelSpec.make("cnn", input_shape=SHAPE, num_classes=CLASSES, **fields)


@st.composite
def nasbench201(draw: Draw) -> ModelSpec:
    """One to three stages of up to two cells with any genotypes, some of them widened."""
    ids, stages, stage_widths = iter(range(99)), [], [draw(widths) for _ in range(draw(st.integers(1, 3)))]
    for width in stage_widths:
        genotypes = [
            arch_string({edge: OPERATIONS[draw(st.integers(0, 4))] for edge in EDGES})
            for _ in range(draw(st.integers(1, 2)))
        ]
        stages.append([Cell(f"c{next(ids)}", genotype, width) for genotype in genotypes])
    spec = make(SHAPE, CLASSES, stage_widths[0], stage_widths[1:], stages)
    return widened(spec, "c0", stage_widths[0] + 2) if draw(st.booleans()) else spec


@st.composite
def resnet_spec(draw: Draw) -> ModelSpec:
    """Up to four blocks behind any stem; projections of both kinds, with a stride or not; three halvings at most."""
    halvings, width = iter([2, 2, 2]), draw(widths)
    stem, blocks = width, []
    stride, pool = next(halvings) if draw(flag) else 1, bool(draw(flag) and next(halvings))
    for number in range(draw(st.integers(1, 4))):
        projection = (False, True, resnet.LINEAR)[draw(st.integers(0, 2))]
        width = draw(widths) if projection else width
        step = next(halvings, 1) if projection and draw(flag) else 1
        blocks.append(resnet.Block(f"c{number}", draw(widths), width, step, projection))
    return resnet.make(SHAPE, CLASSES, stem, blocks, draw(st.sampled_from([3, 7])), stride, pool)


@st.composite
def mobilenetv3_spec(draw: Draw) -> ModelSpec:
    """Up to four blocks, with and without each of their parts."""
    halvings, width = iter([2, 2, 2]), draw(widths)
    stem, blocks = width, []
    for number in range(draw(st.integers(1, 4))):
        expand = ("conv", "none", "adapter")[draw(st.integers(0, 2))]
        hidden = width if expand == "none" else draw(widths)
        residual = bool(draw(flag))
        out = width if residual else draw(widths)
        step = 1 if residual or not draw(flag) else next(halvings, 1)
        squeeze, activation = draw(st.integers(0, 3)), ("relu", "hardswish")[draw(st.integers(0, 1))]
        kernel = 3 + 2 * draw(st.integers(0, 1))
        blocks.append(mobilenetv3.Block(f"c{number}", kernel, hidden, out, squeeze, activation, step, expand, residual))
        width = out
    last, hidden, dense = draw(widths), draw(widths), bool(draw(flag))
    return mobilenetv3.make(SHAPE, CLASSES, stem, 1, blocks, last, hidden, dense)


@st.composite
def mobilenetv2_spec(draw: Draw) -> ModelSpec:
    """MobileNetV3's blocks without what only those have."""
    spec = draw(mobilenetv3_spec())
    blocks = [
        block._replace(squeeze=0, activation="relu6", expand="conv" if block.expand == "adapter" else block.expand)
        for block, _ in mobilenetv3.blocks(spec)
    ]
    return mobilenetv2.make(SHAPE, CLASSES, spec["stem"], 1, blocks, spec["last"])


@st.composite
def vit_spec(draw: Draw) -> ModelSpec:
    """Up to three blocks; patches that fit the input and that do not."""
    blocks = [(f"c{number}", draw(st.integers(1, 4))) for number in range(draw(st.integers(1, 3)))]
    patch, width, head_dim, mlp = draw(st.integers(2, 5)), draw(st.integers(2, 6)), draw(widths), draw(widths)
    return vit.make(SHAPE, CLASSES, blocks, patch, width, head_dim, mlp)


@st.composite
def multi_exit_spec(draw: Draw, dropout: float = 0.0) -> ModelSpec:
    """Any backbone of up to four stages, with exits at any of its blocks, of which it holds some."""
    backbone = ("vgg", "resnet18", "cnn", "mlp")[draw(st.integers(0, 3))]
    least, common = 2 if backbone == "resnet18" else 1, bool(draw(flag))
    count = draw(st.integers(1 + common, 4 if backbone == "mlp" else 3))
    stages = [[draw(widths) for _ in range(draw(st.integers(least, least + 1)))] for _ in range(count)]
    blocks = count - common
    positions = [block for block in range(1, blocks + 1) if block == blocks or draw(flag)]
    return multi_exit.make(
        backbone, SHAPE, CLASSES, stages, common=common, positions=positions,
        pools=[bool(draw(flag)) for _ in stages], exits=draw(st.integers(1, len(positions))),
        heads=("all", "last")[draw(flag)], predict=("last", "mean")[draw(flag)], dropout=dropout, bias=bool(draw(flag)),
    )  # fmt: skip


@st.composite
def custom_module(draw: Draw) -> ModelSpec:
    """A network that is not ours, of operations in any order."""
    step = st.sampled_from(["conv", "depthwise", "several", "norm", "shortcut", "gate", "concatenate", "shuffle"])
    steps = ["conv", *draw(st.lists(step, min_size=1, max_size=4))]
    numbers = [draw(widths) for _ in steps]
    return custom.make(f"tests.models.channels.networks:Random(steps={steps}, widths={numbers})", SHAPE, CLASSES)


CELLS = {"nasbench201": nasbench201(), "resnet": resnet_spec(), "mobilenetv3": mobilenetv3_spec(), "vit": vit_spec()}
FAMILIES = {
    "cnn": cnn(),
    "mobilenetv2": mobilenetv2_spec(),
    "multi_exit": multi_exit_spec(),
    "custom_module": custom_module(),
    **CELLS,
}
