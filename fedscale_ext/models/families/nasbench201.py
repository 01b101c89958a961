"""Networks of NAS-Bench-201 cells (Dong & Yang, ICLR 2020) whose cells can be widened and deepened.

Stem (3x3 convolution, BatchNorm) -> stages of cells, a residual reduction (stride 2) between
stages -> BatchNorm, ReLU, global average pool, linear. Every convolution on an edge is
ReLU-Conv-BN. FedTrans transforms cells only; stem, reductions and head stay as they are.

Fields of the spec: ``input_shape`` (C, H, W), ``num_classes``, ``stem`` (width), ``reductions``
(width behind each reduction) and ``stages``: per stage a tuple of cells
``(cell_id, genotype, width, adapter)``. All tensors of a cell are named ``cells.<cell_id>.…``,
which does not change when cells are inserted before it.

``adapter`` says that the channels of a cell are no longer those of its input one by one: edges
from the input without weights (skip, pool) then carry a 1x1 convolution. Widening sets it on the
widened cell and on the next one, for good.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

from torch import nn

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.models.families import nasbench201_modules as modules
from fedscale_ext.models.families.genotype import (
    EDGES,
    KERNEL,
    WIDTH_KEEPING,
    arch_string,
    identity_genotype,
    keeps_width,
    parse,
)
from fedscale_ext.models.inputs import check_depth
from fedscale_ext.models.layers.parts import conv, conv_bn, linear, norm

BASE_GENOTYPE = "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|nor_conv_3x3~1|none~2|"


class Cell(NamedTuple):
    """One transformable block, as it is written in the spec."""

    cell_id: str
    genotype: str
    width: int
    adapter: bool = False


@dataclass(frozen=True)
class Step:
    """A cell or (``cell`` is None) a reduction in the order of the forward pass.

    ``name`` is the prefix of its tensors; ``source`` and ``target`` are the channel groups that
    it reads and writes.
    """

    name: str
    cell: Cell | None
    source: str
    in_width: int
    target: str
    width: int


def make(
    input_shape: Sequence[int], num_classes: int, stem: int, reductions: Sequence[int], stages: Iterable[Iterable[Cell]]
) -> ModelSpec:
    """Spec of a network; UserError where its parts do not fit together."""
    spec = ModelSpec.make(
        "nasbench201",
        input_shape=tuple(input_shape),
        num_classes=num_classes,
        stem=stem,
        reductions=tuple(reductions),
        stages=tuple(tuple(tuple(cell) for cell in stage) for stage in stages),
    )
    steps(spec)
    return spec


def base(input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """FedTrans's initial model for FEMNIST: NAS-Bench-201's base (Appendix A; figure only, no widths).

    10,678 parameters and 2.57 MMACs at 1x28x28 with 62 classes, the size that the published storage
    and cost imply. One residual cell of two 3x3 convolutions per stage learnt a little faster than
    two cells per stage with half as many 3x3 convolutions each, at the same cost.
    """
    return _sized((8, 16), input_shape, num_classes)


def _sized(widths: Sequence[int], input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    stages = [[Cell(f"c{number}", BASE_GENOTYPE, width)] for number, width in enumerate(widths)]
    return make(input_shape, num_classes, widths[0], widths[1:], stages)


# Fig 1b's "seven models of varying complexities", each with twice the MACs of the one before. The paper
# names no architectures; these are the base at other widths, within 2 % of the powers of two at 1x28x28.
DOUBLINGS = {1: (8, 16), 2: (11, 23), 4: (16, 32), 8: (23, 46), 16: (32, 64), 32: (46, 92), 64: (64, 128)}

FIELDS = ("input_shape", "num_classes", "stem", "reductions", "stages")
NAMED: dict[str, Callable[[tuple[int, int, int], int], ModelSpec]] = {
    "nasbench201_base": base,
    "nasbench201_sixteenth": partial(_sized, (2, 4)),  # what the weakest device of a first look affords
    **{f"nasbench201_{times}x": partial(_sized, widths) for times, widths in DOUBLINGS.items()},
}


def _stages(spec: ModelSpec) -> list[list[Cell]]:
    return [[Cell(*cell) for cell in stage] for stage in spec["stages"]]


def _check_fields(spec: ModelSpec) -> None:
    """Raise UserError for fields of wrong types or values, which a spec file may contain."""
    cells = [cell for stage in spec["stages"] for cell in stage]
    for cell in cells:
        if not isinstance(cell, tuple) or len(cell) not in (3, 4) or list(map(type, cell[:2])) != [str, str]:
            raise UserError(f"nasbench201 spec: {cell!r:.60} is no cell; give [id, genotype, width, adapter]")
    widths = [("stem", spec["stem"]), *(("reductions", width) for width in spec["reductions"])]
    for where, width in [*widths, *((f"cell {cell[0]!r}", cell[2]) for cell in cells)]:
        if type(width) is not int or width < 1:
            raise UserError(f"nasbench201 spec: {where} has width {width!r:.40}; give a whole number above 0")


@lru_cache(maxsize=1024)
def steps(spec: ModelSpec) -> tuple[Step, ...]:
    """Cells and reductions in order, with the channel groups between them."""
    _check_fields(spec)
    stages, reductions = _stages(spec), spec["reductions"]
    if not stages:
        raise UserError("nasbench201 spec has no stages; give one or more, each a list of cells")
    if len(reductions) != len(stages) - 1:
        raise UserError(f"nasbench201 spec has {len(stages)} stages and {len(reductions)} reductions; give one less")
    check_depth("nasbench201", spec["input_shape"], len(reductions))
    result: list[Step] = []
    seen: set[str] = set()
    group, width = "stem", spec["stem"]
    for number, stage in enumerate(stages):
        if number:
            name = f"reductions.{number - 1}"
            result.append(Step(name, None, group, width, name, reductions[number - 1]))
            group, width = name, reductions[number - 1]
        for cell in stage:
            genotype = parse(cell.genotype)
            if cell.cell_id in seen or not cell.cell_id.isidentifier():
                raise UserError(f"nasbench201 spec: cell id {cell.cell_id!r} is used twice or not a plain name")
            if not cell.adapter and cell.width != width:
                raise UserError(
                    f"nasbench201 spec: cell {cell.cell_id!r} of width {cell.width} follows {width} channels; "
                    "set its adapter flag, the fourth of its values"
                )
            seen.add(cell.cell_id)
            name = f"cells.{cell.cell_id}"
            target = group if keeps_width(genotype) and not cell.adapter else name
            result.append(Step(name, cell, group, width, target, cell.width))
            group, width = target, cell.width
    return tuple(result)


def build(spec: ModelSpec) -> nn.Module:
    """Build the network of a spec, with torch's own initialisation."""
    checked = steps(spec)
    network = modules.Network(spec["input_shape"][0], spec["stem"])
    width = spec["stem"]
    for step in checked:
        if step.cell is None:
            part: nn.Module = modules.Reduction(step.in_width, step.width)
        else:
            part = modules.Cell(parse(step.cell.genotype), step.in_width, step.width, step.cell.adapter)
        network.append(step.name, part)
        width = step.width
    network.finish(width, spec["num_classes"])
    return network


def layout(spec: ModelSpec) -> Layout:
    """Return the axes of every tensor; groups "input" and "classes" have fixed lengths."""
    axes = conv_bn("stem", "input", "stem")
    group = "stem"
    for step in steps(spec):
        if step.cell is None:
            axes |= conv_bn(f"{step.name}.a", step.source, step.target)
            axes |= conv_bn(f"{step.name}.b", step.target, step.target)
            axes |= conv(f"{step.name}.shortcut", step.source, step.target)
        else:
            for (start, end), operation in parse(step.cell.genotype).items():
                name = f"{step.name}.{modules.edge_name(start, end)}"
                source = step.source if start == 0 else step.target
                if operation in KERNEL:
                    axes |= conv_bn(name, source, step.target)
                elif operation in WIDTH_KEEPING and start == 0 and step.cell.adapter:
                    axes |= conv(f"{name}.adapter", source, step.target)
        group = step.target
    return axes | norm("head.bn", group) | linear("head.linear", group, "classes")


def resized(spec: ModelSpec, widths: Mapping[str, int]) -> ModelSpec:
    """Return the spec with other lengths of groups; see :func:`fedscale_ext.models.resized`.

    A cell that writes channels of its own and is no longer as wide as its input says so by the
    adapter flag, which gives it no tensors: none of its edges without weights begins at its input.
    """
    cells = iter([step for step in steps(spec) if step.cell is not None])
    width, stages = widths.get("stem", spec["stem"]), []
    reductions = [widths.get(f"reductions.{number}", old) for number, old in enumerate(spec["reductions"])]
    for number, stage in enumerate(_stages(spec)):
        width = reductions[number - 1] if number else width
        resized_stage = []
        for cell in stage:
            step = next(cells)
            new = widths.get(step.target, cell.width if step.target == step.name else width)
            resized_stage.append(cell._replace(width=new, adapter=cell.adapter or new != width))
            width = new
        stages.append(resized_stage)
    return make(spec["input_shape"], spec["num_classes"], widths.get("stem", spec["stem"]), reductions, stages)


def taps(spec: ModelSpec) -> tuple[str, ...]:
    """The stem and the last cell of each stage that has cells."""
    return ("stem", *(f"cells.{stage[-1].cell_id}" for stage in _stages(spec) if stage))


# --- Functions of a family with cells, for FedTrans's transformer ---------------------------------------


def _cells(spec: ModelSpec) -> dict[str, Step]:
    return {step.cell.cell_id: step for step in steps(spec) if step.cell is not None}


def cell_ids(spec: ModelSpec) -> tuple[str, ...]:
    """Return the ids of the cells in the order of the forward pass."""
    return tuple(_cells(spec))


def cell_group(spec: ModelSpec, cell_id: str) -> tuple[str, int]:
    """Channel group that the cell writes, and its width."""
    step = _cells(spec)[cell_id]
    return step.target, step.width


def _with_stages(spec: ModelSpec, stages: Any) -> ModelSpec:
    return make(spec["input_shape"], spec["num_classes"], spec["stem"], spec["reductions"], stages)


def widened(spec: ModelSpec, cell_id: str, width: int) -> ModelSpec:
    """Return the spec with the cell at ``width`` channels; it and the next cell of its stage get adapters.

    With the present width this only adds adapters, whose matrices are square then.
    """
    stages = _stages(spec)
    for stage in stages:
        for index, cell in enumerate(stage):
            if cell.cell_id == cell_id:
                stage[index] = cell._replace(width=width, adapter=True)
                if index + 1 < len(stage):
                    stage[index + 1] = stage[index + 1]._replace(adapter=True)
    return _with_stages(spec, stages)


def deepened(spec: ModelSpec, cell_id: str, new_ids: Sequence[str]) -> ModelSpec:
    """Return the spec with cells ``new_ids`` inserted behind the cell, each able to be an identity."""
    stages = []
    for stage in _stages(spec):
        cells = []
        for cell in stage:
            cells.append(cell)
            if cell.cell_id == cell_id:
                genotype = arch_string(identity_genotype(parse(cell.genotype)))
                cells += [Cell(new, genotype, cell.width) for new in new_ids]
        stages.append(cells)
    return _with_stages(spec, stages)


def identity_zeros(spec: ModelSpec, cell_id: str) -> list[str]:
    """Return the names of tensors that make an inserted cell an exact identity, in training and evaluation, when zero:
    the BatchNorm scales (and shifts) of the convolutions into its output."""
    step = _cells(spec)[cell_id]
    assert step.cell is not None
    genotype = parse(step.cell.genotype)
    ends = [f"{step.name}.{modules.edge_name(*edge)}" for edge in EDGES if edge[1] == 3 and genotype[edge] in KERNEL]
    return [f"{end}.bn.{part}" for end in ends for part in ("weight", "bias")]
