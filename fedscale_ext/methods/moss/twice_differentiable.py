"""Networks whose second derivatives cost no more than need be, where torch has no good ones of its own."""

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vjp
from torch.nn import functional

from fedscale_ext.core.errors import one_line
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.core.types import State
from fedscale_ext.methods.moss.batch_norm import batch_norm
from fedscale_ext.methods.moss.convolutions import grouped_conv2d
from fedscale_ext.models.layers.dropout import DrawnFrom
from fedscale_ext.models.layers.final_layer import deepest
from fedscale_ext.models.layers.plain_attention import PlainAttention
from fedscale_ext.models.random_input import random_input
from fedscale_ext.models.registry import initial_state, parameter_names, skeleton


class TwiceDifferentiable(PlainAttention):
    """In the block, run networks' grouped convolutions and their BatchNorm by a batch's statistics by our kernels.

    Attention and hardsigmoid become operations that torch can differentiate twice. It applies to the current thread
    only. Running statistics stay as they are.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the calls of torch that have a twice differentiable form here; pass on all others."""
        options = kwargs or {}
        if func is functional.conv2d and len(args) == 7 and args[6] > 1 and not isinstance(args[4], str):
            return grouped_conv2d(*args)
        if (
            func is functional.batch_norm
            and options.get("training")
            and _maps(args[0])
            and options.get("weight") is not None
        ):
            return batch_norm(args[0], options["weight"], options["bias"], options["eps"])
        if func is functional.hardsigmoid:
            return functional.relu6(args[0] + 3) / 6
        return super().__torch_function__(func, types, args, kwargs)


@cached_by_spec(1024)
def lacking_derivative(spec: ModelSpec) -> str | None:
    """Return torch's sentence on an operation of a network that has no second derivative; None if all have one."""
    module, state = skeleton(spec).train(), initial_state(spec, 0)
    generator = torch.Generator().manual_seed(0)
    x = random_input(2, *spec["input_shape"], generator=generator)

    def loss(theta: State) -> Tensor:
        buffers = {name: each.clone() for name, each in state.items() if name not in theta}
        with DrawnFrom(generator):
            logits = deepest(functional_call(module, {**theta, **buffers}, (x,)), 2)
        return logits.square().mean()

    try:
        with TwiceDifferentiable():
            slope, back, *_ = vjp(grad(loss), {name: state[name] for name in parameter_names(spec)})
        back(slope)
    except Exception as error:  # other errors are reported where the network runs
        if "not implemented" in str(error):
            return one_line(str(error), 120)
    return None


def _maps(x: Tensor) -> bool:
    """Whether x is [B, C, H, W] with more than one value of each channel; torch refuses others itself."""
    return x.dim() == 4 and x.numel() > x.shape[1]
