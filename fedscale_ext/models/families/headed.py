"""Networks of any family that end alike: a body whose outputs are a representation, and a linear head (Fed-ET).

Heads of all such networks of one ``width`` and task have the same tensors, ``head.weight`` and ``head.bias``, whatever
the bodies are. Fields of the spec: ``body`` (family and fields of a spec whose classes are the representation),
``input_shape``, ``num_classes``, ``width``.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.core.model_spec import Axis, Layout, ModelSpec
from fedscale_ext.models import registry

FIELDS = ("body", "input_shape", "num_classes", "width")
HEAD = ("head.weight", "head.bias")
NAMED: Mapping[str, Callable[[tuple[int, int, int], int], ModelSpec]] = {}


class Headed(nn.Module):
    """Rectified representation, then the head: [B, C, H, W] -> [B, classes] (or [B, exits, classes])."""

    def __init__(self, body: nn.Module, width: int, num_classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        logits: Tensor = self.head(functional.relu(self.body(x)))
        return logits


def headed(spec: ModelSpec, width: int) -> ModelSpec:
    """A network like ``spec`` with a representation of ``width`` before its classes."""
    body = spec.replace(num_classes=width)
    fields = {"input_shape": spec["input_shape"], "num_classes": spec["num_classes"], "width": width}
    return ModelSpec.make("headed", body=(body.family, body.fields), **fields)


def body_of(spec: ModelSpec) -> ModelSpec:
    """The spec of the body."""
    family, fields = spec["body"]
    return ModelSpec(family, fields)


def build(spec: ModelSpec) -> nn.Module:
    """The network of a spec."""
    return Headed(registry.build(body_of(spec)), spec["width"], spec["num_classes"])


def layout(spec: ModelSpec) -> Layout:
    """Axes of every tensor."""
    axes: Layout = {f"body.{name}": tensor_axes for name, tensor_axes in _named(registry.layout(body_of(spec))).items()}
    representation, classes = Axis("representation", "in"), Axis("classes", "out")
    return {**axes, "head.weight": (classes, representation), "head.bias": (classes,)}


def reads_symbols(spec: ModelSpec) -> bool | None:
    """Whether the body reads numbers of symbols; None if it may."""
    return registry.reads_symbols(body_of(spec))


def _named(axes: Layout) -> Layout:
    """Rename the body's group of classes to the representation."""
    return {
        name: tuple(
            replace(axis, group="representation") if axis and axis.group == "classes" else axis for axis in tensor_axes
        )
        for name, tensor_axes in axes.items()
    }


def taps(spec: ModelSpec) -> tuple[str, ...]:
    """Return the taps of the body."""
    from fedscale_ext.models.taps import taps as of_body

    return tuple(f"body.{name}" for name in of_body(body_of(spec)))
