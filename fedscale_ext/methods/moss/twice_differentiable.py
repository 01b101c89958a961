"""Networks whose second derivatives cost no more than need be, where torch has no good ones of its own."""

from typing import Any

from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fedscale_ext.methods.moss.batch_norm import batch_norm
from fedscale_ext.methods.moss.convolutions import grouped_conv2d


class TwiceDifferentiable(TorchFunctionMode):
    """Within it, networks' grouped convolutions and their BatchNorm by a batch's statistics are ours.

    Of the current thread only. Running statistics stay as they are.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Any call of torch; those stay what they are that modules do not make so."""
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
    """[B, C, H, W], with more than one value of each channel, or torch has something to say."""
    return x.dim() == 4 and x.numel() > x.shape[1]
