"""Any ``nn.Module`` as a model: a class of the user's, or a network of torchvision or timm.

A configuration names it ``package.module:Class``, ``torchvision:NAME`` or ``timm:NAME``, with arguments in brackets
where it takes some: ``nets:Net(width=32)``. Fields of the spec: ``network`` (what stands before the brackets),
``arguments`` (pairs), ``input_shape`` (C, H, W), ``num_classes`` and ``widths``, the channel groups
(``models/channels``) that have another number of channels than the network as it is, as pairs.

Only classes of ``nn.Module`` are called, with numbers, strings and lists of them, because a spec comes from a file or
another process.
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from operator import methodcaller
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from fedscale_ext import compat
from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.models.channels import channel_layout
from fedscale_ext.models.channels.narrowing import narrow
from fedscale_ext.models.families.torchvision_models import read_channels
from fedscale_ext.models.layers.dropout import Dropout

FIELDS = ("network", "arguments", "input_shape", "num_classes", "widths")
DRAWN_BY = "nothing"  # by all of the whole network, which is cut
NAMED: Mapping[str, Callable[[tuple[int, int, int], int], ModelSpec]] = {}

_FORM = "write a custom model as package.module:Class or package.module:Class(name=value)"
_BATCH = 2


def is_custom(model: str) -> bool:
    """Tell whether a configuration's ``model`` is of this family."""
    return ":" in model


def make(model: str, input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """Return the spec of a configuration's ``model``; UserError if it cannot be made, or does not fit the data."""
    network, arguments = parse_name(model)
    spec = ModelSpec.make(
        "custom_module",
        network=network,
        arguments=tuple(sorted(arguments.items())),
        input_shape=tuple(input_shape),
        num_classes=num_classes,
        widths=(),
    )
    _check_output(spec)
    return spec


def parse_name(model: str) -> tuple[str, dict[str, Any]]:
    """Return the network's name and its arguments; UserError for another form."""
    network, opened, rest = model.partition("(")
    source, _, name = network.partition(":")
    if not (source and name and (not opened or rest.endswith(")"))):
        raise UserError(f"model {model!r:.100}: {_FORM}")
    try:
        call = ast.parse(f"f({rest}" if opened else "f()", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        arguments = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        assert "None" not in arguments and all(map(_is_plain_value, arguments.values()))
    except (SyntaxError, ValueError, AssertionError):
        raise UserError(f"model {model!r:.100}: arguments are name=value, of numbers, strings and lists") from None
    return network, arguments


def _is_plain_value(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain_value, value))
    return value is None or isinstance(value, bool | int | float | str)


def build(spec: ModelSpec) -> nn.Module:
    """Build the network of a spec; a narrower one has the leading channels of the network's own draw."""
    module = _full_network(spec)
    if spec["widths"]:
        narrow(module, layout(spec), dict(spec["widths"]))
    return module


def reads_symbols(spec: ModelSpec) -> None:
    """Nobody knows whether the network reads numbers of symbols."""


def layout(spec: ModelSpec) -> Layout:
    """Return the axes of every tensor, from the network's forward pass."""
    return _layout(spec.replace(widths=()))


def resized(spec: ModelSpec, widths: Mapping[str, int]) -> ModelSpec:
    """Return the spec with other widths; UserError if the forward pass names numbers of channels."""
    from fedscale_ext.models.resizing import group_widths  # it imports the registry, and that this module

    whole = group_widths(spec.replace(widths=()))
    changed = {**dict(spec["widths"]), **widths}
    child = spec.replace(widths=tuple(sorted(item for item in changed.items() if item not in whole.items())))
    _check_forward_of_narrower(child)
    return child


@cached_by_spec(64)
def _layout(spec: ModelSpec) -> Layout:
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # the job's own draws stay as they are
        return channel_layout(_full_network(spec), spec["input_shape"])


def _full_network(spec: ModelSpec) -> nn.Module:
    """The network as it is, on the current device; by way of the CPU where its code reads values."""
    try:
        module = _instantiate(spec)
    except (NotImplementedError, UserError):
        if torch.empty(0).device.type != "meta":
            raise
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            module = _instantiate(spec).to("meta")
    for name, part in list(module.named_modules()):
        if type(part) is nn.Dropout:  # each client's draws are from its own stream, and clients can train side by side
            parent, _, last = name.rpartition(".")
            setattr(module.get_submodule(parent), last, Dropout(part.p))
    return module


def _instantiate(spec: ModelSpec) -> nn.Module:
    network, arguments = spec["network"], dict(spec["arguments"])
    source, _, name = network.partition(":")
    channels, height, _ = spec["input_shape"]
    classes = spec["num_classes"]
    try:
        if source == "torchvision":
            return _torchvision_network(name, channels, {"num_classes": classes, **arguments})
        if source == "timm":
            return _timm_network(name, height, {"in_chans": channels, "num_classes": classes, **arguments})
        module_class = _imported_class(network)
        task = {"num_classes": classes, "in_channels": channels, "input_shape": spec["input_shape"]}
        known = inspect.signature(module_class).parameters
        return module_class(**{**{name: value for name, value in task.items() if name in known}, **arguments})
    except (UserError, NotImplementedError):
        raise
    except Exception as error:  # whatever the network's own code raises
        raise UserError(
            f"model {network} cannot be built: {type(error).__name__}: {one_line(str(error), 200)}"
        ) from None


def _imported_class(network: str) -> type[nn.Module]:
    """Return the class that ``package.module:Class`` names; the working folder is searched last."""
    source, _, name = network.partition(":")
    if "" not in sys.path:
        sys.path.append("")
    _check_source(network, source)
    try:
        named = getattr(importlib.import_module(source), name, None)
    except ImportError as error:
        raise UserError(
            f"model {network} cannot be imported: {one_line(str(error), 200)}; install its package, or start the job "
            "in the folder that has it, on every machine"
        ) from None
    except Exception as error:
        raise UserError(
            f"model {network}: importing {source} fails: {type(error).__name__}: {one_line(str(error), 200)}"
        ) from None
    if not (isinstance(named, type) and issubclass(named, nn.Module)):
        what = "has no" if named is None else "is no nn.Module class:"
        raise UserError(f"model {network}: {source} {what} {name}; {_FORM}")
    return named


def _check_source(network: str, source: str) -> None:
    """Raise UserError if this process has a module of another file than a new process would load under its name."""
    module = sys.modules.get(source)
    loaded = getattr(module, "__file__", None)
    if loaded is None or getattr(module, "__spec__", None) is None:  # typed in, or the program itself
        return
    origin, folders, name = None, None, ""
    for part in source.split("."):
        name = f"{name}.{part}".lstrip(".")
        spec = next(filter(None, (finder.find_spec(name, folders) for finder in sys.meta_path)), None)
        if spec is None or spec.origin in ("built-in", "frozen"):  # Python has it itself
            return
        origin, folders = spec.origin, spec.submodule_search_locations
    if origin is not None and Path(origin).resolve() != Path(loaded).resolve():
        raise UserError(
            f"model {network}: this process has loaded {source} from {loaded}, and a new one would load {origin}; "
            "restart Python to use that, or go back to the folder of the first"
        )


def _torchvision_network(name: str, channels: int, arguments: dict[str, Any]) -> nn.Module:
    models = compat.torchvision_models()
    if name not in models.list_models(module=models):
        raise UserError(f"torchvision has no network {name!r}; torchvision.models.list_models() shows all")
    module: nn.Module = models.get_model(name, weights=None, **arguments)
    read_channels(module, channels, methodcaller("reset_parameters"))
    return module


def _timm_network(name: str, side: int, arguments: dict[str, Any]) -> nn.Module:
    compat.torchvision_models()
    try:
        timm = importlib.import_module("timm")
    except ImportError:
        raise UserError(f"model timm:{name} needs timm: pip install 'fedscale_ext[timm]'") from None
    if not timm.is_model(name):
        raise UserError(f"timm has no network {name!r}; timm.list_models() shows all")
    settings = timm.get_pretrained_cfg(name)
    if settings is not None and settings.fixed_input_size:
        arguments = {"img_size": side, **arguments}
    module: nn.Module = timm.create_model(name, pretrained=False, **arguments)
    return module


def _output_shape(spec: ModelSpec) -> torch.Size:
    """Return the shape of the output for two samples; nothing is computed."""
    with torch.device("meta"):
        module = build(spec)
        if any(map(is_lazy, [*module.parameters(), *module.buffers()])):
            raise UserError(f"model {spec['network']} has lazy layers; give each layer its number of inputs, as in "
                            "nn.Linear(16, 8) in place of nn.LazyLinear(8)")  # fmt: skip
        output = module(torch.empty(_BATCH, *spec["input_shape"]))
    if not isinstance(output, torch.Tensor):
        raise TypeError(f"the forward pass returns {type(output).__name__}, not logits")
    return output.shape


def _check_output(spec: ModelSpec) -> None:
    network, classes = spec["network"], spec["num_classes"]
    try:
        output_shape = tuple(_output_shape(spec))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"model {network} does not run on samples of {spec['input_shape']}: {one_line(str(error), 200)}"
        ) from None
    if output_shape != (_BATCH, classes):
        raise UserError(
            f"model {network} gives an output of shape {output_shape} for {_BATCH} samples of {classes} classes, not "
            f"{(_BATCH, classes)}; let the class take num_classes"
        )


@cached_by_spec(1024)
def _check_forward_of_narrower(spec: ModelSpec) -> None:
    try:
        _output_shape(spec)
    except Exception as error:
        raise UserError(
            f"model {spec['network']} cannot be made narrower, its forward pass fails with fewer channels "
            f"({one_line(str(error), 150)}); let it take sizes from its inputs, as x.flatten(1) does"
        ) from None
