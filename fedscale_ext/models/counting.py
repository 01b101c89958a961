"""The cost of a module, counted by running it once on the meta device (no arithmetic, no memory)."""

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Cost
from fedscale_ext.util.macs import convolution_backward

BATCH = 2  # BatchNorm in training mode refuses a single value per channel


def count(module: nn.Module, x: Tensor) -> tuple[int, int]:
    """Count multiply-accumulates per sample; only matrix products and convolutions count.

    Args:
        module: A module on the meta device.
        x: A batch of ``BATCH`` samples; its gradient counts if it requires one.

    Returns:
        MACs of the forward pass, and of forward and backward.

    """
    module.train()
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: convolution_backward})
    # looking for NaN, which a caller may have set, reads values, and tensors of the meta device have none
    with torch.autograd.set_detect_anomaly(False), counter:
        output = module(x)
        forward = counter.get_total_flops()
        if output.requires_grad:
            output.sum().backward()
    per_mac = 2 * BATCH
    return forward // per_mac, counter.get_total_flops() // per_mac


def sizes(module: nn.Module) -> tuple[int, int]:
    """Return the number of trainable parameters, and the bytes of the whole state."""
    return (
        sum(tensor.numel() for tensor in module.parameters() if tensor.requires_grad),
        sum(tensor.numel() * tensor.element_size() for tensor in module.state_dict().values()),
    )


def measure(module: nn.Module, input_shape: tuple[int, ...]) -> Cost:
    """Count the cost per sample of a module.

    Training counts forward and backward; as in training, the gradient of the network's input is not computed. Only
    matrix products and convolutions count, as multiply-accumulates.

    Args:
        module: A module on the meta device.
        input_shape: Shape of a sample.

    Returns:
        MACs, parameters and bytes.

    Raises:
        UserError: If no parameter is trainable, or nothing was counted. The counter does not see every operation, and a
            model without cost would fit every device.

    """
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise UserError(f"{type(module).__name__} has no trainable parameter; leave requires_grad of some true")
    with torch.device("meta"):  # of tensors that the forward pass makes, too
        forward, training = count(module, torch.empty(BATCH, *input_shape))
    if forward == 0 or training == forward:
        raise UserError(
            f"no multiply-accumulates were counted in the forward or backward pass of {type(module).__name__}; "
            "build it of operations that torch.utils.flop_counter knows"
        )
    return Cost(forward, training, *sizes(module))
