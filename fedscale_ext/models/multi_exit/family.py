"""Networks with exits at several depths (HypeMeFed, SenSys 2024, section 4.2): VGG, ResNet-18, CNN and MLP.

A client that affords only so much of the network gets its first exits and what lies before them: :func:`prefix`.
Tensors have the same names at every depth, so that the state of a prefix is the whole's state restricted to its names:
``common`` (where there is one), ``block1``, ``exit1``, ``block2``, ... (:mod:`fedscale_ext.models.multi_exit.modules`).

Fields of the spec: ``backbone``; ``input_shape`` (C, H, W), windows of a signal being (C, 1, T), for which kernels and
pools have a height of 1; ``num_classes``; ``widths``, for each stage those of its layers (of a ResNet's: the stage's
own and the hidden ones of its blocks); ``common``, whether the first stage (of a ResNet beside its stem) is shared by
all depths and has no exit; ``pools``, which stages of a VGG or CNN end with a max-pool; ``positions``, the blocks that
have an exit; ``exits``, how many of them the network holds; ``heads`` all or last (only the deepest exit that it
holds); ``predict`` last or mean, what evaluation gives; ``dropout`` before each exit's linear layer; ``bias``, whether
a VGG's or CNN's convolutions have one. A whole of ``heads`` all has parts of ``heads`` last too: their tensors are
among its own.

The paper has exits at one third, at two thirds and at the end. Named networks of its data have them behind stages 2, 3
and 4 of four, as its public code does, and not of equal MACs: 0.46, 0.73 and all of ``vgg_svhn`` and ``vgg_stl10``,
0.49, 0.75 and all of ``vgg_unimib``, 0.52, 0.76 and all of ``resnet18``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn

from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.models.layers.parts import conv, conv_bn, initialise, linear, norm
from fedscale_ext.models.multi_exit.modules import ConvStage, Exit, LinearStage, MultiExit, ResidualStage, Stem
from fedscale_ext.models.multi_exit.spec import (
    FIELDS,
    Sides,
    Stage,
    check,
    early,
    kernel,
    make,
    maps,
    num_exits,
    outputs,
    pool_of,
    positions_read,
    prefix,
    stages,
)

__all__ = ["FIELDS", "NAMED", "build", "layout", "make", "num_exits", "outputs", "prefix", "resized"]

Shape = tuple[int, int, int]


def build(spec: ModelSpec) -> nn.Module:
    """Build the network of a spec: convolutions initialised by He et al., linear layers as torch does."""
    check(spec)
    backbone = spec["backbone"]
    parts: dict[str, nn.Module] = {}
    width, flat = spec["input_shape"][0], positions_read(spec)
    if backbone == "mlp":
        width = math.prod(spec["input_shape"])
    elif backbone == "resnet18" and not spec["common"]:
        width = spec["widths"][0][0]
        parts["common"] = ResidualStage(width, width, (), kernel(spec), stem=_stem(spec))
    for stage, sides, positions in zip(stages(spec), maps(spec), flat, strict=False):
        parts[stage.name] = _stage(spec, stage, width, sides)
        width = stage.widths[0] if backbone == "resnet18" else stage.widths[-1]
        if stage.exit:
            readout = {"resnet18": "mean", "mlp": "none"}.get(backbone, "flatten")
            parts[stage.exit] = Exit(width * positions, spec["num_classes"], readout, spec["dropout"])
    return initialise(MultiExit(parts, spec["predict"] == "mean"))


def _stem(spec: ModelSpec) -> Stem:
    strides, (channels, *_) = early(spec), spec["input_shape"]
    sides = (7, 7) if strides else kernel(spec)
    return Stem(channels, spec["widths"][0][0], sides, 2 if strides else 1, strides == 2)


def _stage(spec: ModelSpec, stage: Stage, width: int, sides: Sides) -> nn.Module:
    if spec["backbone"] == "mlp":
        return LinearStage(width, stage.widths, flat=not stage.first)
    if spec["backbone"] != "resnet18":
        return ConvStage(width, stage.widths, kernel(spec), pool_of(sides) if stage.pool else None, spec["bias"])
    out, *hidden = stage.widths
    stem = _stem(spec) if stage.name == "common" else None
    return ResidualStage(out if stage.first else width, out, hidden, kernel(spec), 1 if stage.first else 2, stem)


def _groups(spec: ModelSpec, stage: Stage) -> tuple[str, ...]:
    """Channel groups of a stage in the order of its widths."""
    if spec["backbone"] == "resnet18":  # what a first stage adds to what it reads, the stem made
        output = "common" if stage.first else stage.name
        return output, *(f"{stage.name}.hidden{number}" for number in range(1, len(stage.widths)))
    kind = "linear" if spec["backbone"] == "mlp" else "conv"
    return tuple(f"{stage.name}.{kind}{number}" for number in range(1, len(stage.widths) + 1))


def layout(spec: ModelSpec) -> Layout:
    """Return the axes of every tensor; each layer has a group of its own, but for what a ResNet's blocks add to."""
    axes: Layout = {}
    source, reads = "input", 1
    if spec["backbone"] == "mlp":
        reads = math.prod(spec["input_shape"][1:])
    if spec["backbone"] == "resnet18":
        axes, source = conv_bn("common.stem", "input", "common"), "common"
    for stage, positions in zip(stages(spec), positions_read(spec), strict=True):
        groups = _groups(spec, stage)
        if spec["backbone"] == "resnet18":
            axes |= _residual(stage, source, groups)
            source = groups[0]
        else:
            for group in groups:
                if spec["backbone"] == "mlp":
                    axes |= linear(group, source, group, reads)
                else:
                    axes |= conv(group, source, group, spec["bias"]) | norm(group.replace(".conv", ".bn"), group)
                source, reads = group, 1
        if stage.exit:
            axes |= linear(f"{stage.exit}.linear", source, "classes", positions)
    return axes


def _residual(stage: Stage, source: str, groups: Sequence[str]) -> Layout:
    target, *hidden = groups
    axes: Layout = {} if stage.first else conv_bn(f"{stage.name}.shortcut", source, target)
    for number, inner in enumerate(hidden):
        for half, reads, writes in ((1, source, inner), (2, inner, target)):
            layer = 2 * number + half
            axes |= conv(f"{stage.name}.conv{layer}", reads, writes) | norm(f"{stage.name}.bn{layer}", writes)
        source = target
    return axes


def resized(spec: ModelSpec, widths: Mapping[str, int]) -> ModelSpec:
    """Return the spec with other numbers of channels by group (:func:`fedscale_ext.models.resized`)."""
    held = [
        tuple(widths.get(group, width) for group, width in zip(_groups(spec, stage), stage.widths, strict=True))
        for stage in stages(spec)
    ]
    return spec.replace(widths=(*held, *spec["widths"][len(held) :]))


def taps(spec: ModelSpec) -> tuple[str, ...]:
    """Return the names of the stages; the outputs of an mlp's are features [B, C]."""
    return tuple(stage.name for stage in stages(spec))


def _vgg(*widths: int) -> list[list[int]]:
    return [[width, width] for width in widths]


def _resnet(*widths: int) -> list[list[int]]:
    return [[width, width, width] for width in widths]


_CNN10 = (16, 16, 16, 32, 32, 32, 64, 64, 64, 64)  # halved at each change of width

# HypeMeFed's public code has biases before BatchNorm and dropout before each exit; the paper's text names neither.
_CODE = {"backbone": "vgg", "bias": True, "dropout": 0.5}
_BACKBONES: dict[str, dict[str, Any]] = {
    "vgg_svhn": {**_CODE, "widths": _vgg(32, 64, 128, 256)},
    "vgg_stl10": {**_CODE, "widths": _vgg(64, 128, 256, 512)},
    "vgg_unimib": {**_CODE, "widths": _vgg(64, 128, 256, 512)},
    "vgg_small": {"backbone": "vgg", "widths": [[16], [32], [64], [128]]},
    "resnet18": {"backbone": "resnet18", "widths": _resnet(64, 128, 256, 512)},
    "resnet18_4": {"backbone": "resnet18", "widths": _resnet(64, 128, 256, 512), "common": False},
    "resnet18_small": {"backbone": "resnet18", "widths": _resnet(16, 32, 64, 128)},
    "cnn3": {"backbone": "cnn", "widths": [[32], [32], [64]], "common": False},
    "cnn10": {
        "backbone": "cnn",
        "widths": [[width] for width in _CNN10],
        "common": False,
        "pools": [index in (0, 3, 6) for index in range(10)],
    },
    "mlp": {"backbone": "mlp", "widths": [[128]] * 4},
}


def _named(name: str, fields: Mapping[str, Any], input_shape: Shape, num_classes: int) -> ModelSpec:
    return make(input_shape=input_shape, num_classes=num_classes, **fields, **_BACKBONES[name])


DRAWN_BY = "outputs"

# single_exit_...: the same with the last exit only, a plain network for methods that know no exits; first_exit_...:
# what all clients afford of it, the network up to its first exit
NAMED: dict[str, Callable[[Shape, int], ModelSpec]] = {
    f"{kind}_exit_{name}": partial(_named, name, fields)
    for kind, fields in (("multi", {}), ("single", {"heads": "last"}), ("first", {"exits": 1}))
    for name in _BACKBONES
}
