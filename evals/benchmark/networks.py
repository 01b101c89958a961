"""The networks of a task: of every approach one for each of the five kinds of devices.

The weakest device affords B MACs per sample, the others 2, 4, 8 and 16 B. Whole networks cost at most 16 B, and their
smallest versions at most B:

- ``large`` by width: cells of NAS-Bench-201, of which a quarter of the channels, ``small``, costs at most B;
- ``atoms`` for SplitMix: an eighth of its channels costs what ``small`` does;
- ``exits``: a VGG of five blocks, whose exits cost at most B, 2 B, 4 B, 8 B and 16 B;
- ``scaled`` for ScaleFL, which narrows and shortens: the widest such VGG that costs at most 16 B;
- ``types``: five foreign architectures;
- ``space``: a supernet, whose cheapest path costs at most B.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evals.benchmark.devices import KINDS
from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.families.nasbench201 import BASE_GENOTYPE, Cell
from fedscale_ext.models.families.nasbench201 import make as cells
from fedscale_ext.models.supernet.spaces import SPACES
from fedscale_ext.models.supernet.spaces import make as supernet
from fedscale_ext.util.atomic_files import write_atomic

EXITS = 5
_POOLS = [True, False, True, False, True, False]
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Networks:
    """The sizes of a task's networks.

    Attributes:
        channels: Of ``large``'s two stages.
        exits: Channels of the VGG's stem and blocks.
        types: Named models, or (channels, channels, hidden units) of a CNN, weakest device first.
        weakest: Which of ``types`` costs B. None: ``small`` does.
        space: Channels of the supernet's stem and of its three groups of two layers. None: the task has no supernet.
    """

    channels: tuple[int, int]
    exits: tuple[int, ...]
    types: tuple[str | tuple[int, int, int], ...]
    weakest: str | tuple[int, int, int] | None
    space: tuple[int, int, int, int] | None = None

    def written(self, shape: Shape, classes: int, folder: Path) -> dict[str, str]:
        """Write the specs into ``folder``, and return their paths by what they are called above and by ``weakest``."""
        folder.mkdir(parents=True, exist_ok=True)
        specs = self.specs(shape, classes)
        for name, spec in specs.items():
            write_atomic(folder / f"{name}.json", json.dumps(spec.to_json()))  # workers write and read them at once
        return {name: str(folder / f"{name}.json") for name in specs}

    def specs(self, shape: Shape, classes: int) -> dict[str, ModelSpec]:
        """Return the networks by name; types are ``type1`` to ``type5``."""
        return dict(_specs(self, shape, classes))


@cache
def _specs(sizes: Networks, shape: Shape, classes: int) -> dict[str, ModelSpec]:
    first, second = sizes.channels
    small = _cells(shape, classes, [first // 4, second // 4])
    weakest = small if sizes.weakest is None else _named(sizes.weakest, shape, classes)
    return {
        "large": _cells(shape, classes, [first, second]),
        "small": small,
        "atoms": _cells(shape, classes, [2 * first, 2 * second]),
        "exits": _vgg(shape, classes, sizes.exits),
        "scaled": _widest_vgg(shape, classes, sizes.exits, 2 ** (KINDS - 1) * models.cost(weakest).forward_macs),
        "weakest": weakest,
        **({} if sizes.space is None else {"space": _space(shape, classes, sizes.space)}),
        **{f"type{kind}": _named(each, shape, classes) for kind, each in enumerate(sizes.types, start=1)},
    }


def _cells(shape: Shape, classes: int, widths: Sequence[int]) -> ModelSpec:
    stages = [[Cell(f"c{number}", BASE_GENOTYPE, width)] for number, width in enumerate(widths)]
    return cells(shape, classes, widths[0], widths[1:], stages)


def _vgg(shape: Shape, classes: int, widths: Sequence[int]) -> ModelSpec:
    fields = {"backbone": "vgg", "widths": [[width] for width in widths], "common": True, "pools": _POOLS,
              "positions": list(range(1, EXITS + 1)), "exits": EXITS, "heads": "all", "predict": "last",
              "dropout": 0.0, "bias": False}  # fmt: skip
    return ModelSpec.make("multi_exit", input_shape=shape, num_classes=classes, **fields)


def _widest_vgg(shape: Shape, classes: int, widths: Sequence[int], limit: int) -> ModelSpec:
    """Return the VGG whose channels are the largest multiple of ``widths``, in eighths, within a limit of MACs."""
    eighths, widest = 8, _vgg(shape, classes, widths)
    while True:
        eighths += 1
        wider = _vgg(shape, classes, [round(width * eighths / 8) for width in widths])
        if models.cost(wider).forward_macs > limit:
            return widest
        widest = wider


def _space(shape: Shape, classes: int, widths: Sequence[int]) -> ModelSpec:
    """Return a supernet with the operators of FedorAS's CNN space; all but the first group halve sides."""
    stem, *groups = widths
    reductions = [("pool", width, 1 if number == 0 else 2) for number, width in enumerate(groups)]
    operators = SPACES["cnn_l"]["operators"]
    fields = {"form": "cnn", "stem": (stem, 2), "blocks": (2, 2, 2), "reductions": reductions, "operators": operators}
    return supernet(shape, classes, **fields)


def _named(model: str | tuple[int, int, int], shape: Shape, classes: int) -> ModelSpec:
    if isinstance(model, str):
        return models.named_spec(model, shape, classes)
    first, second, hidden = model
    fields = {"widths": (first, second), "kernels": (3, 3), "hidden": hidden}
    return ModelSpec.make("cnn", input_shape=shape, num_classes=classes, **fields)


FOLDED = Networks(
    (4, 8), (1, 3, 8, 20, 40, 64),
    ((1, 4, 16), (2, 6, 16), (4, 12, 32), "lenet_6k", "lenet_80k"), None, (3, 8, 16, 24),
)  # fmt: skip
FRAMED = Networks(
    (4, 8), (2, 4, 7, 12, 36, 64),
    ((1, 4, 16), (2, 6, 16), (4, 12, 32), "lenet_6k", "lenet_80k"), None, (2, 6, 10, 20),
)  # fmt: skip
SMALL = Networks(
    (4, 8), (1, 2, 6, 12, 24, 48),
    ((1, 2, 16), (2, 6, 16), (4, 12, 32), "lenet_6k", "lenet_80k"), None,
)  # fmt: skip
USUAL = Networks(
    (8, 16), (6, 8, 16, 32, 64, 128),
    ("lenet_6k", "mobilenetv2_thin", "resnet18_speech", "cnn_small", "nasbench201_base"), "cnn_tiny_smallest",
)  # fmt: skip
