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
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from fedscale_ext import compat
from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.core.model_spec import Layout, ModelSpec
from fedscale_ext.models.channels import channel_layout
from fedscale_ext.models.channels.narrowing import narrow
from fedscale_ext.models.dropout import Dropout

FIELDS = ("network", "arguments", "input_shape", "num_classes", "widths")
NAMED: Mapping[str, Callable[[tuple[int, int, int], int], ModelSpec]] = {}

_FORM = "write a model of your own as package.module:Class or package.module:Class(name=value)"
_BATCH = 2


def is_own(model: str) -> bool:
    """Tell whether a configuration's ``model`` is of this family."""
    return ":" in model


def make(model: str, input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """Return the spec of a configuration's ``model``; UserError if it cannot be made, or does not fit the data."""
    network, arguments = parsed(model)
    spec = ModelSpec.make(
        "own_module",
        network=network,
        arguments=tuple(sorted(arguments.items())),
        input_shape=tuple(input_shape),
        num_classes=num_classes,
        widths=(),
    )
    _check(spec)
    return spec


def parsed(model: str) -> tuple[str, dict[str, Any]]:
    """Return the network's name and its arguments; UserError for another form."""
    network, opened, rest = model.partition("(")
    source, _, name = network.partition(":")
    if not (source and name and (not opened or rest.endswith(")"))):
        raise UserError(f"model {model!r:.100}: {_FORM}")
    try:
        call = ast.parse(f"f({rest}" if opened else "f()", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        arguments = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        assert "None" not in arguments and all(map(_plain, arguments.values()))
    except (SyntaxError, ValueError, AssertionError):
        raise UserError(f"model {model!r:.100}: arguments are name=value, of numbers, strings and lists") from None
    return network, arguments


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def build(spec: ModelSpec) -> nn.Module:
    """The network of a spec; a narrower one has the leading channels of the network's own draw."""
    module = _whole(spec)
    if spec["widths"]:
        narrow(module, layout(spec), dict(spec["widths"]))
    return module


def layout(spec: ModelSpec) -> Layout:
    """Axes of every tensor, from the network's forward pass."""
    return _layout(spec.replace(widths=()))


def resized(spec: ModelSpec, widths: Mapping[str, int]) -> ModelSpec:
    """The spec with other widths; UserError if the forward pass names numbers of channels."""
    from fedscale_ext.models.widths import group_widths  # it imports the registry, and that this module

    whole = group_widths(spec.replace(widths=()))
    changed = {**dict(spec["widths"]), **widths}
    child = spec.replace(widths=tuple(sorted(item for item in changed.items() if item not in whole.items())))
    _check_narrow(child)
    return child


@lru_cache(maxsize=64)
def _layout(spec: ModelSpec) -> Layout:
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # the job's own draws stay as they are
        return channel_layout(_whole(spec), spec["input_shape"])


def _whole(spec: ModelSpec) -> nn.Module:
    """The network as it is, on the current device; by way of the CPU where its code reads values."""
    try:
        module = _called(spec)
    except NotImplementedError:
        if torch.get_default_device().type != "meta":
            raise
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            module = _called(spec).to("meta")
    for name, part in list(module.named_modules()):
        if type(part) is nn.Dropout:  # each client's draws are from its own stream, and clients can train side by side
            module.set_submodule(name, Dropout(part.p))
    return module


def _called(spec: ModelSpec) -> nn.Module:
    network, arguments = spec["network"], dict(spec["arguments"])
    source, _, name = network.partition(":")
    channels, height, _ = spec["input_shape"]
    classes = spec["num_classes"]
    try:
        if source == "torchvision":
            return _of_torchvision(name, channels, {"num_classes": classes, **arguments})
        if source == "timm":
            return _of_timm(name, height, {"in_chans": channels, "num_classes": classes, **arguments})
        made = _class(network)
        task = {"num_classes": classes, "in_channels": channels, "input_shape": spec["input_shape"]}
        known = inspect.signature(made).parameters
        return made(**{**{name: value for name, value in task.items() if name in known}, **arguments})
    except (UserError, NotImplementedError):
        raise
    except Exception as error:  # whatever the network's own code raises
        raise UserError(
            f"model {network} cannot be built: {type(error).__name__}: {one_line(str(error), 200)}"
        ) from None


def _class(network: str) -> type[nn.Module]:
    """The class that ``package.module:Class`` names. The working folder is searched after all installed packages."""
    source, _, name = network.partition(":")
    if "" not in sys.path:
        sys.path.append("")
    try:
        found = getattr(importlib.import_module(source), name, None)
    except ImportError as error:
        raise UserError(
            f"model {network} cannot be imported: {one_line(str(error), 200)}; install its package, or start the job "
            "in the folder that has it, on every machine"
        ) from None
    except Exception as error:
        raise UserError(
            f"model {network}: importing {source} fails: {type(error).__name__}: {one_line(str(error), 200)}"
        ) from None
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        what = "has no" if found is None else "is no nn.Module class:"
        raise UserError(f"model {network}: {source} {what} {name}; {_FORM}")
    return found


def _of_torchvision(name: str, channels: int, arguments: dict[str, Any]) -> nn.Module:
    models = compat.torchvision_models()
    if name not in models.list_models(module=models):
        raise UserError(f"torchvision has no network {name!r}; torchvision.models.list_models() shows all")
    module: nn.Module = models.get_model(name, weights=None, **arguments)
    return _reading(module, channels)


def _of_timm(name: str, side: int, arguments: dict[str, Any]) -> nn.Module:
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


def _reading(module: nn.Module, channels: int) -> nn.Module:
    """Let the first convolution read so many channels; if that changes it, its weights are drawn anew."""
    first = next((part for part in module.modules() if isinstance(part, nn.Conv2d)), None)
    if first is not None and first.in_channels != channels:
        first.in_channels = channels
        first.weight = nn.Parameter(first.weight.new_empty(first.out_channels, channels, *first.kernel_size))
        first.reset_parameters()
    return module


def _passed(spec: ModelSpec) -> torch.Size:
    """Shape of the output for two samples; nothing is computed."""
    with torch.device("meta"):
        output = build(spec)(torch.empty(_BATCH, *spec["input_shape"]))
    if not isinstance(output, torch.Tensor):
        raise TypeError(f"the forward pass returns {type(output).__name__}, not logits")
    return output.shape


def _check(spec: ModelSpec) -> None:
    network, classes = spec["network"], spec["num_classes"]
    try:
        given = tuple(_passed(spec))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"model {network} does not run on samples of {spec['input_shape']}: {one_line(str(error), 200)}"
        ) from None
    if given != (_BATCH, classes):
        raise UserError(
            f"model {network} gives an output of shape {given} for {_BATCH} samples of {classes} classes, not "
            f"{(_BATCH, classes)}; let the class take num_classes"
        )


@lru_cache(maxsize=1024)
def _check_narrow(spec: ModelSpec) -> None:
    try:
        _passed(spec)
    except Exception as error:
        raise UserError(
            f"model {spec['network']} cannot be made narrower, its forward pass fails with fewer channels "
            f"({one_line(str(error), 150)}); let it take sizes from its inputs, as x.flatten(1) does"
        ) from None
