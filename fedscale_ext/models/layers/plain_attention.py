"""Attention by matrix products and a softmax, which torch can differentiate any number of times, forward and backward.

Its fused kernels, which it takes by default, have first derivatives only.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class PlainAttention(TorchFunctionMode):
    """In the block, run networks' attention without fused kernels.

    It applies to the current thread only, unlike ``torch.nn.attention.sdpa_kernel``, which sets the whole process.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace calls of attention; pass on all others."""
        options = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            return _attention(*args, **options)
        if func is functional.multi_head_attention_forward:  # it takes no fused kernel where it returns weights
            output, weights = func(*args, **{**options, "need_weights": True})
            return output, weights if options.get("need_weights", True) else None
        return func(*args, **options)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *args: Any, **options: Any
) -> Tensor:
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
    output: Tensor = torch.ops.aten._scaled_dot_product_attention_math(query, key, value, attn_mask, *args, **options)[
        0
    ]
    return output
