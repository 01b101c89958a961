"""Layers of K networks side by side: one pass of each layer serves the whole cohort.

Two forms of activation occur. A *map* [B, K * C, H, W] holds the clients' channels one behind the
other, so that a convolution of all clients is one grouped convolution; *features* [K, B, F] are what
a linear layer reads, one batched matrix product for all clients. Every layer holds its tensors as
[K, *shape]; :meth:`Layer.bind` hands it those of the clients that train.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.models import dropout, parts


def to_features(x: Tensor, clients: int) -> Tensor:
    """[B, K * C] -> [K, B, C]."""
    return x.unflatten(1, (clients, -1)).transpose(0, 1)


class SharedWeight(Protocol):
    """Weights of a linear layer of which the clients hold no copies each (``training/factored.py``)."""

    def linear(self, x: Tensor, bias: Tensor) -> Tensor:
        """The layer on x [K, B, in] with bias [K, out] -> [K, B, out]."""
        ...


NOTHING_SHARED: Mapping[str, SharedWeight] = MappingProxyType({})


class Layer(nn.Module):
    """What all stacked layers share. ``tensors``: local names that it takes from the clients' states."""

    tensors: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.state_name = name
        self.clients = 0
        self.mask: Tensor | None = None
        self.bound: dict[str, Tensor] = {}
        self.shared: SharedWeight | None = None

    def bind(
        self,
        tensors: Mapping[str, Tensor],
        clients: int,
        mask: Tensor | None,
        shared: Mapping[str, SharedWeight] = NOTHING_SHARED,
    ) -> None:
        """Use the first ``clients`` clients' tensors; ``mask`` bool [B, K] where batches are not all full.
        ``shared``: by state name, weights that are not among the tensors."""
        self.clients, self.mask = clients, mask
        prefix = f"{self.state_name}." if self.state_name else ""
        self.bound = {name: tensors[prefix + name] for name in self.tensors if prefix + name in tensors}
        self.shared = shared.get(f"{prefix}weight")


class Convolution(Layer):
    """A Conv2d per client, as one convolution in K times as many groups."""

    tensors = ("weight", "bias")

    def __init__(self, name: str, conv: nn.Conv2d) -> None:
        super().__init__(name)
        self.stride, self.padding, self.dilation, self.groups = conv.stride, conv.padding, conv.dilation, conv.groups

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        weight, bias = self.bound["weight"].flatten(0, 1), self.bound.get("bias")
        return functional.conv2d(
            x,
            weight,
            None if bias is None else bias.flatten(),
            self.stride,
            self.padding,
            self.dilation,
            self.groups * self.clients,
        )


class BatchNorm(Layer):
    """A BatchNorm2d per client: its statistics are per channel anyway, so it is one BatchNorm of K * C channels.

    Clients whose batch is smaller than the cohort's have rows that are no samples; the statistics
    leave those out.
    """

    tensors = ("weight", "bias", "running_mean", "running_var")

    def __init__(self, name: str, norm: nn.BatchNorm2d) -> None:
        super().__init__(name)
        assert norm.momentum is not None
        self.momentum, self.eps = norm.momentum, norm.eps

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        flat = {name: tensor.view(-1) for name, tensor in self.bound.items()}
        mean, variance = flat.get("running_mean"), flat.get("running_var")
        weight, bias = flat.get("weight"), flat.get("bias")
        if self.mask is None:
            return functional.batch_norm(x, mean, variance, weight, bias, True, self.momentum, self.eps)
        return self._masked(x, mean, variance, weight, bias)

    def _masked(
        self, x: Tensor, mean: Tensor | None, variance: Tensor | None, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        assert self.mask is not None
        channels, area = x.shape[1] // self.clients, x.shape[2] * x.shape[3]
        here = self.mask.to(x.dtype).repeat_interleave(channels, 1)[:, :, None, None]  # [B, K * C, 1, 1]
        count = here.sum((0, 2, 3)) * area
        # torch.where, not a product: rows that are no samples may hold anything
        centre = torch.where(here > 0, x, 0).sum((0, 2, 3)) / count
        offset = torch.where(here > 0, x - centre[:, None, None], 0)
        spread = offset.square().sum((0, 2, 3)) / count
        if mean is not None and variance is not None:
            with torch.no_grad():
                mean.lerp_(centre, self.momentum)
                variance.lerp_(spread * count / (count - 1), self.momentum)
        scaled = offset * torch.rsqrt(spread + self.eps)[:, None, None]
        if weight is not None and bias is not None:
            scaled = scaled * weight[:, None, None] + bias[:, None, None]
        return scaled


class GroupNorm(Layer):
    """A GroupNorm per client."""

    tensors = ("weight", "bias")

    def __init__(self, name: str, norm: nn.GroupNorm) -> None:
        super().__init__(name)
        self.groups, self.eps = norm.num_groups, norm.eps

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        flat = {name: tensor.view(-1) for name, tensor in self.bound.items()}
        return functional.group_norm(x, self.groups * self.clients, flat.get("weight"), flat.get("bias"), self.eps)


class Linear(Layer):
    """A Linear per client on features [K, B, F]."""

    tensors = ("weight", "bias")

    def __init__(self, name: str, linear: nn.Linear) -> None:
        super().__init__(name)
        self.biased = linear.bias is not None

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        bias = self.bound.get("bias")
        if self.shared is not None:
            assert bias is not None
            return self.shared.linear(x, bias)
        weight = self.bound["weight"].transpose(1, 2)
        return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight)


class Flatten(Layer):
    """A map [B, K * C, H, W] as features [K, B, C * H * W]."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.unflatten(1, (self.clients, -1)).transpose(0, 1).flatten(2)


class SpatialMean(Layer):
    """The mean over height and width as features [K, B, C]."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = parts.SpatialMean()

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return to_features(self.mean(x), self.clients)


class Concatenate(Layer):
    """Maps behind one another along each client's channels."""

    def forward(self, *maps: Tensor) -> Tensor:  # noqa: D102
        return torch.cat([x.unflatten(1, (self.clients, -1)) for x in maps], 2).flatten(1, 2)


class ChannelScale(Layer):
    """Maps [B, K * C, H, W] times features [K, B, C]."""

    def forward(self, x: Tensor, factors: Tensor) -> Tensor:  # noqa: D102
        return x * factors.transpose(0, 1).flatten(1)[:, :, None, None]


class Dropout(Layer):
    """Features [K, B, F]; each client draws for its own samples, whose rows come first, from its own generator."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.generators: Sequence[torch.Generator] = ()

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if not self.generators:
            return functional.dropout(x, self.p)
        batch = x.shape[1]
        samples = [batch] * self.clients if self.mask is None else self.mask.sum(0).tolist()
        masks = [
            functional.pad(
                dropout.mask((num_samples, *x.shape[2:]), self.p, generator, x), (0, 0, 0, batch - num_samples)
            )
            for num_samples, generator in zip(samples, self.generators, strict=False)  # those behind have left
        ]
        return x * torch.stack(masks)


class ExitStack(Layer):
    """Logits [K, B, classes] of each exit -> [K, B, exits, classes]."""

    def forward(self, *logits: Tensor) -> Tensor:  # noqa: D102
        return torch.stack(logits, 2)
