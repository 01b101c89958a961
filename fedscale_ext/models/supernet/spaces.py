"""Search spaces as data: the fields of a supernet's spec, their checks, and the known spaces by name.

FedorAS (Dudziak, Laskaridis, Fernandez-Marques, 2022), section 4.1; widths, operators and reductions are those of
its public code (the appendix with them is not part of the submission's text).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from fedscale_ext.core.errors import UserError, did_you_mean, meant_or_known
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.supernet import operators as supernet_operators
from fedscale_ext.models.supernet import recurrent as supernet_recurrent
from fedscale_ext.models.supernet.operators import REDUCTIONS, LayerShape, Maker

Shape = tuple[int, int, int]
Ops = tuple[tuple[str, ...], ...]  # of each searchable layer: names of its candidate operators

FORMS: dict[str, Mapping[str, Maker]] = {"cnn": supernet_operators.OPERATORS, "rnn": supernet_recurrent.OPERATORS}

_CNN_L = ("conv1", "dsconv3_half", "dsconv3", "dsconv3_double", "mbconv1_double", "mbconv3_half", "mbconv3",
          "mbconv3_double", "identity")  # fmt: skip
_CNN_S = ("conv1", "dsconv3_half", "dsconv3", "dsconv1_double", "dsconv3_double", "mbconv1_double", "mbconv3_half",
          "conv3", "mbconv3", "mbconv3_double", "identity")  # fmt: skip
_RNN = ("lstm", "gru", "ligru", "qrnn", "linear", "causal_conv")


def _halving(kind: str, *widths: int) -> list[tuple[str, int, int]]:
    return [(kind, width, 2) for width in widths]


_SEPARABLE = [("separable", width, 2 if index in (0, 1, 5) else 1)
              for index, width in enumerate((96, 144, 216, 324, 486, 729))]  # fmt: skip

SPACES: dict[str, dict[str, Any]] = {
    "cnn_l": {"form": "cnn", "stem": (64, 1), "blocks": (4, 4, 4, 4), "operators": _CNN_L,
              "reductions": _halving("conv", 96, 144, 216, 324)},
    "cifar10_extra_range": {"form": "cnn", "stem": (64, 1), "blocks": (4, 4, 4, 4, 8, 8), "operators": _CNN_L,
                            "reductions": _SEPARABLE},
    "cnn_s": {"form": "cnn", "stem": (16, 2), "blocks": (1, 1, 2, 2), "operators": _CNN_S,
              "reductions": _halving("pool", 32, 64, 128, 256)},
    "cnn_tiny": {"form": "cnn", "stem": (16, 2), "blocks": (2, 2, 2), "operators": _CNN_L,
                 "reductions": _halving("conv", 24, 36, 54)},
    "rnn": {"form": "rnn", "ops": (_RNN, (*_RNN, "zero"), (*_RNN, "identity"), (*_RNN, "identity", "zero"))},
}  # fmt: skip
SPACES["rnn_positions"] = {**SPACES["rnn"], "readout": "all"}

FIELDS = ("form", "input_shape", "num_classes", "ops", "stem", "blocks", "reductions", "symbols", "embedding", "hidden",
          "stages", "readout", "mixed")  # fmt: skip
SHORT = ("operators",)
MIXTURES = ("alphas", "equal")
_LAYERS = 1000
_RNN_FIELDS = {"symbols": 90, "embedding": 8, "hidden": 128, "stages": 2, "readout": "last"}


def make(input_shape: Sequence[int], num_classes: int, **fields: Any) -> ModelSpec:
    """The spec of a space for a task; ``operators`` instead of ``ops`` are the candidates of every layer.

    UserError where its parts do not fit together or an operator is not known.
    """
    fields = {**(_RNN_FIELDS if fields.get("form") == "rnn" else {}), **fields}
    if "operators" in fields:
        layers = sum(fields["blocks"]) if fields.get("form") == "cnn" else 2 * fields["stages"]
        fields["ops"] = (tuple(fields.pop("operators")),) * min(layers, _LAYERS + 1)
    spec = ModelSpec.make("supernet", input_shape=tuple(input_shape), num_classes=num_classes, **fields)
    check(spec)
    return spec


def completed(spec: ModelSpec, input_shape: Shape, num_classes: int) -> ModelSpec:
    """Complete a short declaration by the task's input shape and classes, and the fields that :func:`make` fills in."""
    fields: dict[str, Any] = {"input_shape": input_shape, "num_classes": num_classes, **dict(spec.fields)}
    return make(**fields)


def mixture(spec: ModelSpec) -> str | None:
    """Return how the network mixes all its operators (field ``mixed``); None if it runs one operator per layer."""
    mode: str | None = dict(spec.fields).get("mixed")  # type: ignore[assignment]
    return mode


def mixed(spec: ModelSpec, how: str | None) -> ModelSpec:
    """Return the space as a mixture, or with ``how`` None as a space that runs by paths."""
    fields = {name: value for name, value in spec.fields if name != "mixed"}
    return ModelSpec.make(spec.family, **fields, **({} if how is None else {"mixed": how}))


@lru_cache(maxsize=4096)
def check(spec: ModelSpec) -> None:
    """Raise UserError if a supernet's fields do not fit together."""
    if spec["form"] not in FORMS:
        raise UserError(f"supernet spec: form is {spec['form']!r}; it must be 'cnn' or 'rnn'")
    if (mixed := mixture(spec)) not in (None, *MIXTURES):
        raise UserError(f"supernet spec: mixed is {mixed!r}; it must be {' or '.join(map(repr, MIXTURES))}, or absent")
    _check_cnn(spec) if spec["form"] == "cnn" else _check_rnn(spec)
    known = FORMS[spec["form"]]
    layers = sum(spec["blocks"]) if spec["form"] == "cnn" else 2 * spec["stages"]
    if layers > _LAYERS:
        raise UserError(f"supernet spec: this space has {layers} layers; {_LAYERS} is the most")
    if len(spec["ops"]) != layers:
        raise UserError(f"supernet spec: ops are of {len(spec['ops'])} layers; this space has {layers}")
    for number, (held, layer) in enumerate(zip(spec["ops"], layer_shapes(spec), strict=True)):
        for name in held:
            if name not in known:
                hint = meant_or_known(str(name), known)
                raise UserError(f"supernet spec: layer {number} has an unknown operator {name!r}{hint}")
        if not held or len(set(held)) != len(held):
            raise UserError(f"supernet spec: layer {number} has the operators {held}; give one or more, each once")
        if "identity" in held and spec["form"] == "rnn" and layer.shape[1] != layer.width:
            raise UserError(
                f"supernet spec: layer {number} makes {layer.width} channels of {layer.shape[1]} and cannot be an "
                "identity"
            )
        if "zero" in held and number % 2 == 0:
            raise UserError(
                f"supernet spec: layer {number} is the first of its stage and cannot be zero; the second may be"
            )


def _check_cnn(spec: ModelSpec) -> None:
    blocks, reductions = spec["blocks"], spec["reductions"]
    if len(blocks) != len(reductions) or not blocks or min(blocks) < 0 or not sum(blocks):
        raise UserError(
            f"supernet spec: blocks are {blocks} and there are {len(reductions)} reductions; give a number of layers "
            "before each reduction, one layer or more in all"
        )
    for kind, _, stride in (("pool", *spec["stem"]), *reductions):
        if kind not in REDUCTIONS:
            hint = meant_or_known(str(kind), REDUCTIONS)
            raise UserError(f"supernet spec: there is no reduction {kind!r}{hint}")
        if stride not in (1, 2):
            raise UserError(f"supernet spec: a stride is {stride!r}; it must be 1 or 2")
    widths = [spec["stem"][0], *(width for _, width, _ in reductions)]
    if min(widths) < 2:
        raise UserError(f"supernet spec: widths are {widths}; each must be at least 2")
    _, *sides = stages(spec)[-1]
    if prod(sides) < 2:
        _, height, width = spec["input_shape"]
        raise UserError(
            f"the last reduction of this supernet would leave one position only, and BatchNorm needs more: "
            f"{height}x{width} is too small, use larger inputs or fewer reductions"
        )


def _check_rnn(spec: ModelSpec) -> None:
    for name in ("symbols", "embedding", "hidden", "stages"):
        if spec[name] < 1:
            raise UserError(f"supernet spec: {name} is {spec[name]}; it must be positive")
    if spec["readout"] not in ("last", "all"):
        raise UserError(f"supernet spec: readout is {spec['readout']!r}; it must be 'last' or 'all'")


def stages(spec: ModelSpec) -> list[Shape]:
    """Return the shapes [C, H, W] of a convolutional space: the input of each reduction, then the last output."""
    _, height, width = spec["input_shape"]
    channels, stride = spec["stem"]
    shapes = []
    for _, after, following in (*spec["reductions"], (None, None, 1)):
        height, width = -(-height // stride), -(-width // stride)
        shapes.append((channels, height, width))
        channels, stride = after, following
    return shapes


@lru_cache(maxsize=4096)
def layer_shapes(spec: ModelSpec) -> tuple[LayerShape, ...]:
    """Return what each searchable layer reads and writes, one :class:`LayerShape` per layer."""
    if spec["form"] == "rnn":
        steps, hidden = prod(spec["input_shape"]), spec["hidden"]
        first, later = LayerShape((steps, spec["embedding"]), hidden), LayerShape((steps, hidden), hidden)
        return (first,) * 2 + (later,) * (2 * spec["stages"] - 2)
    return tuple(
        LayerShape(shape, shape[0]) for shape, layers in zip(stages(spec), spec["blocks"], strict=False)
        for _ in range(layers)
    )  # fmt: skip


def restricted(spec: ModelSpec, ops: Sequence[Sequence[str]]) -> ModelSpec:
    """Return the spec of a subspace, or a path.

    Args:
        spec: The supernet.
        ops: Names of the operators of each layer; the result has them in the supernet's order.

    Raises:
        UserError: If an operator is not in the supernet, a layer has none, or the number of layers differs.

    """
    if len(ops) != len(spec["ops"]):
        raise UserError(f"operators of {len(ops)} layers were asked for; this supernet has {len(spec['ops'])}")
    remaining = []
    for number, (names, held) in enumerate(zip(ops, spec["ops"], strict=True)):
        missing = [name for name in names if name not in held]
        if missing or not names:
            hint = did_you_mean(missing[0], held) if missing else ""
            what = f"no operator {missing[0]!r}{hint}" if missing else "to keep one operator or more"
            raise UserError(f"layer {number} of this supernet has {what}; it holds {', '.join(held)}")
        remaining.append(tuple(name for name in held if name in names))
    return spec.replace(ops=tuple(remaining))


def path_of(spec: ModelSpec, path: Sequence[str]) -> ModelSpec:
    """Return the spec of a path's ordinary model, one operator name per layer."""
    return restricted(spec, [(name,) for name in path])
