"""Stacked layers on tokens: [K, B, T, D] of K clients (see :mod:`fedscale_ext.models.stacked.layers`)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.models.families import vit
from fedscale_ext.models.stacked.layers import Layer


class Patches(Layer):
    """Each client's patches as tokens, [B, K * C, H, W] -> [K, B, T, D]: one convolution in K groups."""

    tensors = ("conv.weight", "conv.bias", "position")

    def __init__(self, name: str, patches: vit.Patches) -> None:
        super().__init__(name)
        self.padding, self.stride = patches.padding, patches.conv.stride

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        weight, bias = self.bound["conv.weight"].flatten(0, 1), self.bound["conv.bias"].flatten()  # [K * D, ...]
        maps = functional.conv2d(
            functional.pad(x, self.padding), weight, bias, self.stride, groups=self.clients
        )  # [B, K * D, h, w]
        per_client = maps.flatten(2).unflatten(1, (self.clients, -1))  # [B, K, D, T]
        return per_client.permute(1, 0, 3, 2) + self.bound["position"].unsqueeze(1)


class Linear(Layer):
    """A Linear per client on each of its tokens, [K, B, T, D] -> [K, B, T, out]."""

    tensors = ("weight", "bias")

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        flat, weight, bias = x.flatten(1, 2), self.bound["weight"].transpose(1, 2), self.bound.get("bias")
        # [K, B * T, D] x [K, D, out]
        result = torch.bmm(flat, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), flat, weight)
        return result.unflatten(1, x.shape[1:3])


class LayerNorm(Layer):
    """A LayerNorm per client over the last axis."""

    tensors = ("weight", "bias")

    def __init__(self, name: str, norm: nn.LayerNorm) -> None:
        super().__init__(name)
        self.eps = norm.eps

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        weight, bias = (self.bound[part][:, None, None] for part in self.tensors)  # [K, 1, 1, D]
        return functional.layer_norm(x, x.shape[-1:], eps=self.eps) * weight + bias


class Attention(Layer):
    """Attention within each sample; it has no weights, so that clients are only more samples."""

    def __init__(self, attention: vit.Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.attention(x.flatten(0, 1)).unflatten(0, x.shape[:2])


class TokenMean(Layer):
    """The mean over tokens, [K, B, T, D] -> features [K, B, D]."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.mean(2)
