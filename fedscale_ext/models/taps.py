"""Features inside a network: the outputs of the modules that its family declares as taps.

A family declares them by ``taps(spec)``, names of modules in the order of the forward pass. Outputs of a tap are maps
[B, C, H, W], tokens [B, T, C] or features [B, C].
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedscale_ext.core.errors import UserError, did_you_mean
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.models.layers.final_layer import deepest
from fedscale_ext.models.layers.hooks import hooked
from fedscale_ext.models.registry import family, searched, skeleton


def taps(spec: ModelSpec) -> tuple[str, ...]:
    """Return the default taps of a spec's family; raise UserError if it declares none."""
    module = family(spec)
    if not hasattr(module, "taps"):
        raise UserError(f"models of the family {spec.family!r} declare no feature taps; name the modules to tap")
    declared: tuple[str, ...] = cast(Any, module).taps(spec)
    return declared


def check_taps(module: nn.Module, names: Sequence[str]) -> None:
    """Raise UserError if the network lacks a module, or a name comes twice."""
    known = [name for name, _ in module.named_modules() if name]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; it has {', '.join(known[:8])}, …"
            raise UserError(f"the network has no module {name!r} to tap{hint}")
    if len(set(names)) < len(names) or not names:
        raise UserError(f"taps must be different modules, at least one; got {', '.join(names) or 'none'}")


def features(
    module: nn.Module, x: Tensor, names: Sequence[str], state: Mapping[str, Tensor] | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run a network and return its logits and the outputs of its taps; not safe for several threads per module.

    Args:
        module: The network.
        x: A batch [B, C, H, W].
        names: Names of the modules to tap.
        state: Tensors to use instead of the module's own.

    Returns:
        Logits [B, classes], of the deepest exit if there are several, and the output of each tap.

    Raises:
        UserError: If a module does not exist, or does not run as a whole.

    """
    with _listening(module, names) as outputs:
        logits: Tensor = module(x) if state is None else functional_call(module, dict(state), (x,))
    for name in names:
        if name not in outputs:  # a list of modules, or an exit that is left out in this pass
            raise UserError(f"module {name!r} cannot be tapped: the network does not run it as a whole; tap one within")
        output: object = outputs[name]
        if not isinstance(output, Tensor) or output.dim() not in (2, 3, 4):
            what = f"a tensor of {output.dim()} axes" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise UserError(
                f"module {name!r} cannot be tapped: its output is {what}, not features, tokens or maps (2 to 4 axes); "
                "tap another one"
            )
    return deepest(logits, 2), {name: outputs[name] for name in names}


@contextmanager
def _listening(module: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    check_taps(module, names)
    outputs: dict[str, Tensor] = {}

    def keep(name: str, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
        outputs[name] = output

    with hooked(module.get_submodule(name).register_forward_hook(partial(keep, name)) for name in names):
        yield outputs


def as_map(output: Tensor, aspect: float) -> Tensor:
    """Reshape a tap's output to a map [B, C, H, W].

    Features become one pixel. Tokens become the rows of a grid, as patches of an image are. A sequence of prime length
    becomes a single line.

    Args:
        output: Maps [B, C, H, W], tokens [B, T, C] or features [B, C].
        aspect: Height / width of the input; the grid's comes nearest to it.

    """
    if output.dim() == 4:
        return output
    if output.dim() == 2:
        return output[:, :, None, None]
    length = output.shape[1]
    fitting = [rows for rows in range(1, length + 1) if length % rows == 0]
    rows = min(fitting, key=lambda rows: abs(math.log(rows * rows / length / aspect)))
    return output.transpose(1, 2).unflatten(2, (rows, length // rows))


@cached_by_spec(1024)
def map_shapes(spec: ModelSpec, names: tuple[str, ...]) -> tuple[tuple[int, int, int], ...]:
    """Return (C, H, W) of each tap as a map; raise UserError if a module does not exist or has no output."""
    if searched(spec):
        raise UserError("a supernet has no features to tap; name a path of it, such as cnn_l_smallest")
    _, height, width = shape = spec["input_shape"]
    outputs = features(skeleton(spec).eval(), torch.empty(2, *shape, device="meta"), names)[1]
    return tuple(_shape(as_map(each, height / width)) for each in outputs.values())


def _shape(feature_map: Tensor) -> tuple[int, int, int]:
    _, channels, height, width = feature_map.shape
    return channels, height, width
