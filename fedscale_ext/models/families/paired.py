"""Two networks of any families that train together on the same samples: a client's own, and one that clients share.

In training a pair gives the logits of both, so that each may learn from the other. In evaluation it is the client's own
network. Fields of the spec: ``own`` and ``shared`` (family and fields of a spec each), ``input_shape``,
``num_classes``. Tensors are those of both networks, named ``own.…`` and ``shared.…``.

With the field ``hidden`` the networks compare their features, too, the inputs of their last linear layers. A linear
map without a bias, ``projection.weight``, takes the shared network's to the own one's.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor, nn

from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.models import registry
from fedscale_ext.models.final_layer import final_layer
from fedscale_ext.models.hidden import Columns, SquaredError, with_input
from fedscale_ext.models.multi_exit.modules import ExitStack, LastExit

FIELDS = ("hidden", "input_shape", "num_classes", "own", "shared")
NAMED: Mapping[str, Callable[[tuple[int, int, int], int], ModelSpec]] = {}
OWN, SHARED = "own.", "shared."  # how the names of the networks' tensors begin
PROJECTION = "projection.weight"
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


class HiddenPaired(Paired):
    """A pair whose training gives a third row: the error of the projected features, once for each class.

    In training [B, C, H, W] -> [B, 3, classes]; then -> the own network's logits [B, classes].

    Args:
        own: The client's network.
        shared: The shared network.
        exits: Whether each has an axis of exits in training.
        layers: Names of their last linear layers.
        widths: Widths of their features.
        classes: Number of classes.

    """

    def __init__(
        self,
        own: nn.Module,
        shared: nn.Module,
        exits: tuple[bool, bool],
        layers: tuple[str, str],
        widths: tuple[int, int],
        classes: int,
    ) -> None:
        super().__init__(own, shared, exits)
        for model, layer in zip((own, shared), layers, strict=True):
            with_input(model, layer)
        self.projection = nn.Linear(widths[1], widths[0], bias=False)
        self.logits = Columns(0, classes)
        self.features = nn.ModuleList(Columns(classes, classes + width) for width in widths)
        self.error = SquaredError(classes)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if not self.training:
            own: Tensor = self.own(x)
            return own
        shared, own = self.last[1](self.shared(x)), self.last[0](self.own(x))
        error = self.error(self.features[0](own), self.projection(self.features[1](shared)))
        rows: Tensor = self.stack(self.logits(shared), self.logits(own), error)
        return rows


def paired(own: ModelSpec, shared: ModelSpec, *, hidden: bool = False) -> ModelSpec:
    """The pair of a client's own network and the shared one, which are for one task; ``hidden``: compare features."""
    task = {name: own[name] for name in ("input_shape", "num_classes")}
    more = {"hidden": True} if hidden else {}
    return ModelSpec.make("paired", own=(own.family, own.fields), shared=(shared.family, shared.fields), **task, **more)


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
    exits = _has_exits(own), _has_exits(shared)
    if not _compares_features(spec):
        return Paired(registry.build(own), registry.build(shared), exits)
    last = final_layer(own), final_layer(shared)
    layers, widths = (last[0].name, last[1].name), (last[0].width, last[1].width)
    return HiddenPaired(registry.build(own), registry.build(shared), exits, layers, widths, spec["num_classes"])


def _compares_features(spec: ModelSpec) -> bool:
    return bool(dict(spec.fields).get("hidden", False))


def layout(spec: ModelSpec) -> Layout:
    """Axes of every tensor; the networks have channels of their own, and the input and the classes in common."""
    axes: Layout = {}
    for begin, part in zip((OWN, SHARED), parts(spec), strict=True):
        for name, tensor_axes in registry.layout(part).items():
            axes[begin + name] = tuple(
                replace(axis, group=begin + axis.group) if axis and axis.group not in _COMMON else axis
                for axis in tensor_axes
            )
    return {**axes, PROJECTION: (None, None)} if _compares_features(spec) else axes
