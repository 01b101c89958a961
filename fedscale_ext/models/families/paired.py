"""Two networks of any families that train together on the same samples: a client's own, and one that clients share.

In training a pair gives the logits of both, so that each may learn from the other. In evaluation it is the client's own
network. Fields of the spec: ``own`` and ``shared`` (family and fields of a spec each), ``input_shape``,
``num_classes``. Tensors are those of both networks, named ``own.…`` and ``shared.…``.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor, nn

from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.models import registry
from fedscale_ext.models.multi_exit.modules import ExitStack, LastExit

FIELDS = ("input_shape", "num_classes", "own", "shared")
NAMED: Mapping[str, Callable[[tuple[int, int, int], int], ModelSpec]] = {}
OWN, SHARED = "own.", "shared."  # how the names of the networks' tensors begin
_COMMON = ("input", "classes")  # groups of channels


class Paired(nn.Module):
    """In training [B, C, H, W] -> logits [B, 2, classes] of the shared and the own network; then -> the own's."""

    def __init__(self, own: nn.Module, shared: nn.Module, exits: tuple[bool, bool]) -> None:
        super().__init__()
        self.own, self.shared = own, shared
        self.last = nn.ModuleList(LastExit() if several else nn.Identity() for several in exits)
        self.stack = ExitStack()

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if not self.training:
            own: Tensor = self.own(x)
            return own
        logits: Tensor = self.stack(self.last[1](self.shared(x)), self.last[0](self.own(x)))
        return logits


def paired(own: ModelSpec, shared: ModelSpec) -> ModelSpec:
    """The pair of a client's own network and the shared one, which are for one task."""
    task = {name: own[name] for name in ("input_shape", "num_classes")}
    return ModelSpec.make("paired", own=(own.family, own.fields), shared=(shared.family, shared.fields), **task)


def parts(spec: ModelSpec) -> tuple[ModelSpec, ModelSpec]:
    """The specs of the own and of the shared network."""
    (own, own_fields), (shared, shared_fields) = spec["own"], spec["shared"]
    return ModelSpec(own, own_fields), ModelSpec(shared, shared_fields)


def _has_exits(spec: ModelSpec) -> bool:
    """Whether a network has an axis of exits in training."""
    if spec.family == "headed":
        family, fields = spec["body"]
        return _has_exits(ModelSpec(family, fields))
    return spec.family == "multi_exit"


def build(spec: ModelSpec) -> nn.Module:
    """The networks of a pair."""
    own, shared = parts(spec)
    return Paired(registry.build(own), registry.build(shared), (_has_exits(own), _has_exits(shared)))


def layout(spec: ModelSpec) -> Layout:
    """Axes of every tensor; the networks have channels of their own, and the input and the classes in common."""
    axes: Layout = {}
    for begin, part in zip((OWN, SHARED), parts(spec), strict=True):
        for name, tensor_axes in registry.layout(part).items():
            axes[begin + name] = tuple(
                replace(axis, group=begin + axis.group) if axis and axis.group not in _COMMON else axis
                for axis in tensor_axes
            )
    return axes
