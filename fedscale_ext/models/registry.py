"""The families of models, and the functions that every family has.

A family is a module with ``NAMED``, ``build`` and ``layout`` (:class:`Family`). Another package
adds one by an entry point in the group ``fedscale_ext.models`` whose name is the family's and
whose object is the module.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor, nn

from fedscale_ext.core.errors import UserError, meant_or_known
from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.models.families import (
    cnn,
    custom_module,
    mobilenetv2,
    mobilenetv3,
    nasbench201,
    resnet,
    torchvision_models,
    vit,
)
from fedscale_ext.models.multi_exit import family as multi_exit
from fedscale_ext.models.supernet import family as supernet

ENTRY_POINT_GROUP = "fedscale_ext.models"
DrawnBy = Literal["inputs", "outputs", "nothing"]


class Family(Protocol):
    """The interface of a family's module.

    ``NAMED``: name -> function of (input_shape, num_classes) giving a spec; ``build``: spec ->
    module whose forward maps [B, C, H, W] to [B, num_classes]; ``layout``: spec -> the axes of
    every tensor of the module's state_dict. Where it has ``FIELDS``, names of its specs' fields, a
    file's spec with another field is refused. A family may have ``cost``, where it knows that
    without building, and ``completed``, which fills in what a spec file leaves to the task (``SHORT``:
    further fields that only such files have). ``reads_symbols``: spec -> whether the network reads numbers of symbols.
    ``DRAWN_BY``: on what the spread of fresh weights depends (:func:`drawn_by`).
    """

    @property
    def NAMED(self) -> Mapping[str, Callable[[tuple[int, int, int], int], ModelSpec]]: ...  # noqa: D102

    def build(self, spec: ModelSpec) -> nn.Module: ...  # noqa: D102

    def layout(self, spec: ModelSpec) -> Layout: ...  # noqa: D102


@lru_cache(maxsize=1)
def _built_in() -> dict[str, Family]:
    from fedscale_ext.models.families import headed, network_pair  # imported late, because they import this module

    return {
        "headed": cast(Family, headed),
        "paired": cast(Family, network_pair),
        "nasbench201": cast(Family, nasbench201),
        "cnn": cast(Family, cnn),
        "resnet": cast(Family, resnet),
        "mobilenetv2": cast(Family, mobilenetv2),
        "mobilenetv3": cast(Family, mobilenetv3),
        "vit": cast(Family, vit),
        "multi_exit": cast(Family, multi_exit),
        "supernet": cast(Family, supernet),
        "torchvision": cast(Family, torchvision_models),
        "custom_module": cast(Family, custom_module),
    }


@lru_cache(maxsize=1)
def _families() -> dict[str, Family]:
    from_entry_points = {point.name: cast(Family, point.load()) for point in entry_points(group=ENTRY_POINT_GROUP)}
    return {**from_entry_points, **_built_in()}


def family(spec_or_name: ModelSpec | str) -> Family:
    """Return the module of a spec's family, or of a family's name; raise UserError if there is none."""
    name = spec_or_name if isinstance(spec_or_name, str) else spec_or_name.family
    module = _families().get(name)
    if module is None:
        raise UserError(f"there is no family of models {name!r}{meant_or_known(name, _families())}")
    return module


def check_name(name: str) -> None:
    """Raise UserError for an unknown name of a model."""
    if custom_module.is_custom(name):
        custom_module.parse_name(name)
    else:
        _makers(name)


def model_names() -> list[str]:
    """Return the names of all models, family by family."""
    return [name for module in _families().values() for name in module.NAMED]


def _makers(name: str) -> Mapping[str, Callable[[tuple[int, int, int], int], ModelSpec]]:
    """Return the function of each named model that makes its spec; raise UserError unless ``name`` is one."""
    makers = {known: maker for each in _families().values() for known, maker in each.NAMED.items()}
    if name not in makers:
        raise UserError(f"there is no model {name!r}{meant_or_known(name, makers)}")
    return makers


def named_spec(
    name: str, input_shape: tuple[int, int, int], num_classes: int, *, text: bool | None = None
) -> ModelSpec:
    """Return the spec of a named model.

    Args:
        name: Name of the model, as in the configuration's ``model``, ``package.module:Class`` included.
        input_shape: Shape of a sample, (C, H, W).
        num_classes: Number of classes.
        text: Whether samples are symbols of a text. None: not known, and all models are taken.

    Raises:
        UserError: If the name is unknown, a number is not positive, or the model does not read such samples.

    """
    makers = {} if custom_module.is_custom(name) else _makers(name)
    if len(input_shape) != 3 or min(input_shape) < 1 or num_classes < 1:
        raise UserError(
            f"model {name!r} needs an input shape (C, H, W) and a number of classes, all positive; "
            f"got {tuple(input_shape)} and {num_classes}"
        )
    channels, height, width = input_shape
    make = makers.get(name) or partial(custom_module.make, name)
    spec = make((channels, height, width), num_classes)
    check_symbols(name, spec, text)
    return spec


def reads_symbols(spec: ModelSpec) -> bool | None:
    """Return whether the network reads numbers of symbols, and not pictures or other values; None if it may be either.

    A family says so by ``reads_symbols``. Without that, those of the package read values, others either.
    """
    module: Any = family(spec)
    if hasattr(module, "reads_symbols"):
        answer: bool | None = module.reads_symbols(spec)
        return answer
    return False if spec.family in _built_in() else None


def check_symbols(model: str, spec: ModelSpec, text: bool | None) -> None:
    """Raise UserError if a model reads symbols of a text and samples are none, or the other way round."""
    reads = reads_symbols(spec)
    if reads is None or text is None or reads == text:
        return
    kinds = {False: ("pictures or other values", "cnn_small"), True: ("symbols of a text", "rnn_largest")}
    (read, _), (samples, other) = kinds[reads], kinds[text]
    raise UserError(
        f"the model {model} reads {read}, and this data set has {samples}: name one that reads these, such as {other}"
    )


def drawn_by(spec: ModelSpec) -> DrawnBy:
    """Return on what the spread of a layer's fresh weights depends.

    ``inputs``: how many it reads, as torch draws them. ``outputs``: the same, but for convolutions how many channels
    they write (``parts.initialise``). ``nothing``: a narrower network's weights spread as the whole one's.
    """
    answer: DrawnBy = getattr(family(spec), "DRAWN_BY", "inputs")
    return answer


def build(spec: ModelSpec) -> nn.Module:
    """Build a module of the spec on the current device, in training mode, initialised at random."""
    return family(spec).build(spec)


def skeleton(spec: ModelSpec) -> nn.Module:
    """Build the module on the meta device: names and shapes without memory or random draws."""
    with torch.device("meta"):
        return build(spec)


@cached_by_spec(1024)
def parameter_names(spec: ModelSpec) -> tuple[str, ...]:
    """Return the names of the trainable tensors, in the order of the state."""
    return tuple(name for name, tensor in skeleton(spec).named_parameters() if tensor.requires_grad)


@cached_by_spec(1024)
def tied_names(spec: ModelSpec) -> Mapping[str, str]:
    """Return the further names of tied tensors, each with its first name in the state.

    Of a parameter, :func:`parameter_names` has the first.
    """
    first: dict[Tensor, str] = {}
    state = skeleton(spec).state_dict(keep_vars=True)
    names = {name: first.setdefault(tensor, name) for name, tensor in state.items()}
    return {name: known for name, known in names.items() if name != known}


def layout(spec: ModelSpec) -> Layout:
    """Return the axes of every tensor of the spec's state."""
    return family(spec).layout(spec)


def searched(spec: ModelSpec) -> bool:
    """Return whether the spec is a supernet, which runs only with a chosen path (``models/supernet/family.py``)."""
    module: Any = family(spec)
    return hasattr(module, "searched") and bool(module.searched(spec))


def outputs(spec: ModelSpec) -> int:
    """Return from how many exits of the network a sample's logits come (``models/multi_exit/family.py``)."""
    module: Any = family(spec)
    return int(module.outputs(spec)) if hasattr(module, "outputs") else 1


def initial_state(spec: ModelSpec, seed: int | torch.Generator) -> dict[str, Tensor]:
    """Draw the initial parameters and buffers on the CPU.

    Equal seeds give equal states. The global generator's state stays unchanged.

    Args:
        spec: The model.
        seed: A seed, or a generator that draws one.

    Returns:
        The tensors by name.

    """
    if isinstance(seed, torch.Generator):
        seed = int(torch.randint(2**62, (), generator=seed))
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        return {name: tensor.detach().clone() for name, tensor in build(spec).state_dict().items()}
