"""Two networks of any families that train together on the same samples: a client's own, and one that clients share.

In training a pair gives the logits of both, so that each may learn from the other. In evaluation it is the client's own
network. Fields of the spec: ``own`` and ``shared`` (family and fields of a spec each), ``input_shape``,
``num_classes``. Tensors are those of both networks, named ``own.…`` and ``shared.…``.

The field ``joined`` says how the networks are joined. Features are the inputs of their last
linear layers.

- ``features``: the networks compare their features. A linear map without a bias, ``projection.weight``, takes the
  shared network's to the own one's.
- ``fused``: both last layers read one representation, a linear map of both networks' features side by side. That map is
  ``projection.own`` plus ``projection.shared``.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

from torch import Tensor, nn

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.models import registry
from fedscale_ext.models.layers.feature_output import Columns, SquaredError, with_input
from fedscale_ext.models.layers.final_layer import ends_in_final_layer, final_layer
from fedscale_ext.models.multi_exit.modules import ExitStack, LastExit

FIELDS = ("input_shape", "joined", "num_classes", "own", "shared")
NAMED: Mapping[str, Callable[[tuple[int, int, int], int], ModelSpec]] = {}
OWN, SHARED = "own.", "shared."  # how the names of the networks' tensors begin
FEATURES, FUSED = "features", "fused"  # values of the field ``joined``
PROJECTION = "projection.weight"  # where features are compared
PROJECTIONS = ("projection.own.bias", "projection.own.weight", "projection.shared.weight")  # where they are fused
_COMMON = ("input", "classes")  # groups of channels


class NetworkPair(nn.Module):
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


class PairWithFeatures(NetworkPair):
    """A pair whose last layers give logits and their inputs, the features, side by side.

    Args:
        own: The client's network.
        shared: The shared network.
        exits: Whether each has an axis of exits in training.
        layers: Names of their last linear layers.
        widths: Widths of their features.
        classes: Number of classes.

    """

    in_tests: ClassVar[bool] = False
    """Whether the last layers give features outside training, too."""

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
            with_input(model, layer, always=self.in_tests)
        self.layers = layers
        self.logits = Columns(0, classes)
        self.features = nn.ModuleList(Columns(classes, classes + width) for width in widths)
        self.add_projections(widths, classes)

    def add_projections(self, widths: tuple[int, int], classes: int) -> None:
        """Add the layers that make features of one width."""
        raise NotImplementedError


class FeatureComparisonPair(PairWithFeatures):
    """A pair whose training gives a third row: the error of the projected features, once for each class.

    In training [B, C, H, W] -> [B, 3, classes]; then -> the own network's logits [B, classes].
    """

    def add_projections(self, widths: tuple[int, int], classes: int) -> None:  # noqa: D102
        self.projection = nn.Linear(widths[1], widths[0], bias=False)
        self.error = SquaredError(classes)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if not self.training:
            own: Tensor = self.own(x)
            return own
        shared, own = self.last[1](self.shared(x)), self.last[0](self.own(x))
        error = self.error(self.features[0](own), self.projection(self.features[1](shared)))
        rows: Tensor = self.stack(self.logits(shared), self.logits(own), error)
        return rows


class FusedPair(PairWithFeatures):
    """A pair whose last layers read one representation, which fuses the features of both networks.

    The own network's last layer reads all of it, the shared one's its first columns, as many as that network has
    features. In training [B, C, H, W] -> [B, 2, classes]; then -> the own network's logits [B, classes].
    """

    in_tests: ClassVar[bool] = True

    def add_projections(self, widths: tuple[int, int], classes: int) -> None:  # noqa: D102
        self.projection = nn.ModuleDict(
            {"own": nn.Linear(widths[0], widths[0]), "shared": nn.Linear(widths[1], widths[0], bias=False)}
        )
        self.first = Columns(0, widths[1])

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        shared, own = self.last[1](self.shared(x)), self.last[0](self.own(x))
        fused = self.projection["own"](self.features[0](own)) + self.projection["shared"](self.features[1](shared))
        logits: Tensor = self.logits(self.own.get_submodule(self.layers[0])(fused))
        if not self.training:
            return logits
        others = self.logits(self.shared.get_submodule(self.layers[1])(self.first(fused)))
        rows: Tensor = self.stack(others, logits)
        return rows


def pair_spec(own: ModelSpec, shared: ModelSpec, *, joined: str = "") -> ModelSpec:
    """The pair of a client's own network and the shared one, which are for one task; see the field for ``joined``."""
    task = {name: own[name] for name in ("input_shape", "num_classes")}
    more = {"joined": joined} if joined else {}
    return ModelSpec.make("paired", own=(own.family, own.fields), shared=(shared.family, shared.fields), **task, **more)


def member_specs(spec: ModelSpec) -> tuple[ModelSpec, ModelSpec]:
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
    own, shared = member_specs(spec)
    exits = _has_exits(own), _has_exits(shared)
    if not _joined(spec):
        return NetworkPair(registry.build(own), registry.build(shared), exits)
    last = final_layer(own), final_layer(shared)
    layers, widths = (last[0].name, last[1].name), (last[0].width, last[1].width)
    if _joined(spec) == FUSED and widths[1] > widths[0]:
        raise UserError(
            f"the shared model has {widths[1]} features and a client's own one {widths[0]}, which must not be fewer; "
            "choose a narrower shared model"
        )
    kind = FusedPair if _joined(spec) == FUSED else FeatureComparisonPair
    pair = kind(registry.build(own), registry.build(shared), exits, layers, widths, spec["num_classes"])
    for part, layer in zip((own, shared), layers, strict=True):
        if not ends_in_final_layer(part):
            raise UserError(
                f"a model of the family {part.family!r} changes what its last linear layer {layer} gives, but this "
                "method takes features beside that layer's outputs; let the model return them as they are"
            )
    return pair


def reads_symbols(spec: ModelSpec) -> bool | None:
    """Whether the networks read numbers of symbols; None if they may."""
    return registry.reads_symbols(member_specs(spec)[0])


def _joined(spec: ModelSpec) -> str:
    return str(dict(spec.fields).get("joined", ""))


def layout(spec: ModelSpec) -> Layout:
    """Axes of every tensor; the networks have channels of their own, and the input and the classes in common."""
    axes: Layout = {}
    for begin, part in zip((OWN, SHARED), member_specs(spec), strict=True):
        for name, tensor_axes in registry.layout(part).items():
            axes[begin + name] = tuple(
                replace(axis, group=begin + axis.group) if axis and axis.group not in _COMMON else axis
                for axis in tensor_axes
            )
    if _joined(spec) == FUSED:
        return {**axes, **{name: (None,) if name.endswith("bias") else (None, None) for name in PROJECTIONS}}
    return {**axes, PROJECTION: (None, None)} if _joined(spec) == FEATURES else axes
