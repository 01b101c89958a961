"""What a model costs, measured by running it once on the meta device (no arithmetic, no memory)."""

from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedscale_ext.errors import UserError
from fedscale_ext.models.registry import skeleton
from fedscale_ext.models.spec import Cost, ModelSpec

_BATCH = 2  # BatchNorm in training mode refuses a single value per channel


def _convolution_backward(
    grad: Any, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: Any, *_: Any, **__: Any,
) -> int:  # fmt: skip
    """Flops of a convolution's backward: input and weight gradient each repeat the forward's products.

    torch's own count forgets the groups in the weight gradient (C times too much for a depthwise one).
    """
    outer = x if transposed else grad
    return 2 * prod(outer) * prod(weight[1:]) * (bool(output_mask[0]) + bool(output_mask[1]))


def measure(module: nn.Module, input_shape: tuple[int, ...]) -> Cost:
    """Cost per sample of a module on the meta device for inputs of ``input_shape`` (without batch).

    Training counts forward and backward; the gradient of the network's input is not computed,
    as in training. Only matrix products and convolutions count (multiply-accumulates).
    UserError when nothing was counted: the counter does not see every operation (an LSTM, say),
    and a model that costs nothing would fit every device.
    """
    module.train()
    x = torch.empty(_BATCH, *input_shape, device="meta")
    counter = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.convolution_backward: _convolution_backward}
    )
    with counter:
        output = module(x)
        forward = counter.get_total_flops()
        output.sum().backward()
    training = counter.get_total_flops()
    if forward == 0 or training == forward:
        raise UserError(
            f"no multiply-accumulates were counted in the forward or backward pass of {type(module).__name__}; "
            "build it of operations that torch.utils.flop_counter knows"
        )
    per_mac = 2 * _BATCH
    return Cost(
        forward_macs=forward // per_mac,
        training_macs=training // per_mac,
        parameters=sum(tensor.numel() for tensor in module.parameters() if tensor.requires_grad),
        bytes=sum(tensor.numel() * tensor.element_size() for tensor in module.state_dict().values()),
    )


@lru_cache(maxsize=4096)
def cost(spec: ModelSpec) -> Cost:
    """Cost of a spec, measured once."""
    return measure(skeleton(spec), spec["input_shape"])
