"""Layers of K networks side by side: one pass of each layer serves the whole cohort.

There are two forms of activations. A *map* [B, K * C, H, W] concatenates the clients' channels, so that one grouped
convolution serves all clients. *Features* [K, B, F] are the input of linear layers, which are one batched matrix
product for all clients. The tensors of every layer have shape [K, *shape]. :meth:`Layer.bind` sets those of the clients
that train.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.models.layers import dropout, parts, strided


def to_features(x: Tensor, clients: int) -> Tensor:
    """Reshape [B, K * C] to [K, B, C]."""
    return x.unflatten(1, (clients, -1)).transpose(0, 1)


class SharedWeight(Protocol):
    """Weights of a linear layer that the clients share, instead of a copy each (``training/factored.py``)."""

    def linear(self, x: Tensor, bias: Tensor) -> Tensor:
        """Apply the layer to x [K, B, in] with bias [K, out]; return [K, B, out]."""
        ...


NOTHING_SHARED: Mapping[str, SharedWeight] = MappingProxyType({})


class Layer(nn.Module):
    """Base of the stacked layers.

    Attributes:
        tensors: Local names of the tensors that the layer takes from the clients' states.
        state_name: Name of the layer in the network.
        clients: Number of clients that train, K.
        mask: Which rows of a batch are samples, bool [B, K]; None: all.
        bound: The tensors by local name, [K, *shape].
        shared: The weights, if the clients share them.

    """

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
        """Use the tensors of the first clients.

        Args:
            tensors: By state name, [K, *shape].
            clients: Number of clients, K.
            mask: Which rows of a batch are samples, bool [B, K]; None: all.
            shared: By state name, weights that are not among the tensors.

        """
        self.clients, self.mask = clients, mask
        prefix = f"{self.state_name}." if self.state_name else ""
        self.bound = {name: tensors[prefix + name] for name in self.tensors if prefix + name in tensors}
        self.shared = shared.get(f"{prefix}weight")


class Convolution(Layer):
    """A Conv2d per client on maps, as one convolution in K times as many groups."""

    tensors = ("weight", "bias")

    def __init__(self, name: str, conv: nn.Conv2d) -> None:
        super().__init__(name)
        self.stride, self.padding, self.dilation, self.groups = conv.stride, conv.padding, conv.dilation, conv.groups

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        weight, bias = self.bound["weight"], self.bound.get("bias")
        # [K * out, in / groups, h, w]; flattened axes of size 1 get strides that torch does not take for channels_last
        weight = weight[0] if self.clients == 1 else weight.flatten(0, 1)
        return strided.conv2d(
            x,
            weight,
            None if bias is None else bias.flatten(),
            self.stride,
            self.padding,
            self.dilation,
            self.groups * self.clients,
        )


class BatchNorm(Layer):
    """A BatchNorm2d per client on maps.

    Statistics are per channel, so that it is one BatchNorm of K * C channels. They leave out padded rows, which clients
    have whose batch is smaller than the cohort's. As in torch, a client with a single value per channel is an error.
    """

    tensors = ("weight", "bias", "running_mean", "running_var")

    def __init__(self, name: str, norm: nn.BatchNorm2d) -> None:
        super().__init__(name)
        assert norm.momentum is not None
        self.momentum, self.eps = norm.momentum, norm.eps

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        flat = {name: tensor.view(-1) for name, tensor in self.bound.items()}  # [K * C]
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
        is_sample = self.mask.to(x.dtype).repeat_interleave(channels, 1)[:, :, None, None]  # [B, K * C, 1, 1]
        count = is_sample.sum((0, 2, 3)) * area  # [K * C]
        if area == 1 and bool((count == 1).any()):
            raise ValueError("expected more than 1 value per channel in training: a client's batch is 1 sample of 1x1")
        # torch.where, not a product: padded rows may have any value
        centre = torch.where(is_sample > 0, x, 0).sum((0, 2, 3)) / count  # [K * C]
        offset = torch.where(is_sample > 0, x - centre[:, None, None], 0)  # [B, K * C, H, W]
        spread = offset.square().sum((0, 2, 3)) / count  # [K * C]
        if mean is not None and variance is not None:
            with torch.no_grad():
                mean.lerp_(centre, self.momentum)
                variance.lerp_(spread * count / (count - 1), self.momentum)
        scaled = offset * torch.rsqrt(spread + self.eps)[:, None, None]
        if weight is not None and bias is not None:
            scaled = scaled * weight[:, None, None] + bias[:, None, None]
        return scaled


class GroupNorm(Layer):
    """A GroupNorm per client on maps."""

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
        weight = self.bound["weight"].transpose(1, 2)  # [K, in, out]
        return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight)


class LinearWithInput(Linear):
    """A linear layer per client whose inputs [K, B, in] follow its outputs: [K, B, out + in]."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.cat([super().forward(x), x], 2)


class Flatten(Layer):
    """Flattens a map [B, K * C, H, W] to features [K, B, C * H * W]."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.unflatten(1, (self.clients, -1)).transpose(0, 1).flatten(2)


class SpatialMean(Layer):
    """The mean of a map over height and width, as features [K, B, C]."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = parts.SpatialMean()

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return to_features(self.mean(x), self.clients)


class Concatenate(Layer):
    """Concatenates maps along each client's channels."""

    def forward(self, *maps: Tensor) -> Tensor:  # noqa: D102
        return torch.cat([x.unflatten(1, (self.clients, -1)) for x in maps], 2).flatten(1, 2)  # [B, K * sum of C, H, W]


class ChannelScale(Layer):
    """Maps [B, K * C, H, W] times features [K, B, C]."""

    def forward(self, x: Tensor, factors: Tensor) -> Tensor:  # noqa: D102
        return x * factors.transpose(0, 1).flatten(1)[:, :, None, None]  # factors as [B, K * C, 1, 1]


class Dropout(Layer):
    """Dropout of features [K, B, F]; each client draws from its own generator, and for its samples only."""

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
            for num_samples, generator in zip(samples, self.generators, strict=False)  # later clients have finished
        ]
        return x * torch.stack(masks)  # [K, B, F]


class ExitStack(Layer):
    """Stacks the exits' logits [K, B, classes] to [K, B, exits, classes]."""

    def forward(self, *logits: Tensor) -> Tensor:  # noqa: D102
        return torch.stack(logits, 2)
