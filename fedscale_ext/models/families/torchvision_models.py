"""Networks of torchvision for comparison (FedTrans, Fig. 9), adapted to the input and the classes.

Fields of the spec: ``name`` (torchvision's), ``input_shape`` (C, H, W) and ``num_classes``. The first
convolution takes the input's channels. For small inputs the first strides are 1: the last of the early
ones first, until the last map is at least 4 pixels high and wide (``models/inputs.py``). No part can
be resized, widened or deepened. torchvision is imported when the first network is built.
"""

from collections.abc import Callable
from functools import lru_cache, partial

import torch
from torch import nn

from fedscale_ext import compat
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.models.inputs import check_depth, early_halvings

NAMES = (
    "efficientnet_v2_s",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "resnet18",
    "resnet34",
)
_HALVINGS = 5  # of each of them, at 224 pixels
_EARLY = 2  # that small inputs can do without


def make(name: str, input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """Spec of torchvision's network ``name``; UserError when it is not one of :data:`NAMES`, or the input too small."""
    spec = ModelSpec.make("torchvision", name=name, input_shape=tuple(input_shape), num_classes=num_classes)
    _early_strides(spec)
    return spec


FIELDS = ("input_shape", "num_classes", "name")
NAMED: dict[str, Callable[[tuple[int, int, int], int], ModelSpec]] = {
    f"torchvision_{name}": partial(make, name) for name in NAMES
}


def _early_strides(spec: ModelSpec) -> int:
    """Return how many of the early strides the network keeps."""
    if spec["name"] not in NAMES:
        raise UserError(f"there is no torchvision model {spec['name']!r} here; there are {', '.join(NAMES)}")
    early = early_halvings(spec["input_shape"], _EARLY, _HALVINGS - _EARLY)
    check_depth(spec["name"], spec["input_shape"], _HALVINGS - _EARLY + early)
    return early


def build(spec: ModelSpec) -> nn.Module:
    """The network of a spec, with torchvision's initialisation."""
    early = _early_strides(spec)
    network: nn.Module = compat.torchvision_models().get_model(
        spec["name"], weights=None, num_classes=spec["num_classes"]
    )
    read_channels(network, spec["input_shape"][0], _draw_as_torchvision)
    strided = [part for part in network.modules() if isinstance(part, nn.Conv2d | nn.MaxPool2d) and _stride(part) == 2]
    for part in strided[early:_EARLY]:
        part.stride = 1 if isinstance(part, nn.MaxPool2d) else (1, 1)
    return network


def _stride(part: nn.Conv2d | nn.MaxPool2d) -> int:
    return part.stride if isinstance(part.stride, int) else part.stride[0]


def read_channels(network: nn.Module, channels: int, draw: Callable[[nn.Conv2d], object]) -> None:
    """Let the first convolution of a network read so many channels.

    Args:
        network: The network, changed in place. One without a convolution stays as it is.
        channels: Number of channels of a sample.
        draw: Draws the convolution's weights anew if that changes them.

    """
    first = next((part for part in network.modules() if isinstance(part, nn.Conv2d)), None)
    if first is not None and first.in_channels != channels:
        first.in_channels = channels
        first.weight = nn.Parameter(first.weight.new_empty(first.out_channels, channels, *first.kernel_size))
        draw(first)


def _draw_as_torchvision(convolution: nn.Conv2d) -> None:
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out")


@lru_cache(maxsize=64)
def _dimensions(spec: ModelSpec) -> dict[str, int]:
    with torch.device("meta"):
        return {name: tensor.dim() for name, tensor in build(spec).state_dict().items()}


def layout(spec: ModelSpec) -> Layout:
    """No axis belongs to a group: these networks are covered whole."""
    return {name: (None,) * dimensions for name, dimensions in _dimensions(spec).items()}
