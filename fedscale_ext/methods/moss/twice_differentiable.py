"""Networks whose second derivatives cost no more than need be, where torch has no good ones of its own."""

from typing import Any

from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fedscale_ext.methods.moss.batch_norm import batch_norm
from fedscale_ext.methods.moss.convolutions import grouped_conv2d


class TwiceDifferentiable(TorchFunctionMode):
    """In the block, run networks' grouped convolutions and their BatchNorm by a batch's statistics by our kernels.

    It applies to the current thread only. Running statistics stay as they are.
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
        return func(*args, **options)


def _maps(x: Tensor) -> bool:
    """Whether x is [B, C, H, W] with more than one value of each channel; torch refuses others itself."""
    return x.dim() == 4 and x.numel() > x.shape[1]
