"""Modules of networks with several exits: stages, exits, and the network that runs them in order.

A stage is what lies between two places where an exit may be: ``common`` or ``block1``, ``block2``, ... Its
convolutions are ``conv1``, ``conv2``, ... and their BatchNorms ``bn1``, ``bn2``, ..., at every depth of the network.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.models.layers.dropout import Dropout
from fedscale_ext.models.layers.parts import ConvBN, SpatialMean
from fedscale_ext.models.multi_exit.spec import Sides


def _convolution(in_width: int, width: int, kernel: Sides, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    padding = kernel[0] // 2, kernel[1] // 2
    return nn.Conv2d(in_width, width, kernel, stride, padding, bias=bias)


class ConvStage(nn.Module):
    """Convolution, BatchNorm and ReLU, once per width, then perhaps a max-pool whose kernel is its stride."""

    def __init__(self, in_width: int, widths: Sequence[int], kernel: Sides, pool: Sides | None, bias: bool) -> None:
        super().__init__()
        self.length, self.pool = len(widths), pool
        for number, width in enumerate(widths, 1):
            self.add_module(f"conv{number}", _convolution(in_width, width, kernel, bias=bias))
            self.add_module(f"bn{number}", nn.BatchNorm2d(width))
            in_width = width

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        for number in range(1, self.length + 1):
            x = self.get_submodule(f"bn{number}")(self.get_submodule(f"conv{number}")(x))
            if number < self.length or self.pool is None:
                x = functional.relu(x)
        # ReLU and max-pool commute; pooling first leaves a quarter of the entries for the ReLU
        return x if self.pool is None else functional.relu(functional.max_pool2d(x, self.pool))


class ResidualStage(nn.Module):
    """BasicBlocks (He et al., CVPR 2016), two convolutions each, behind a ``stem`` if there is one.

    ``hidden``: inner channels of each block. Where ``stride`` is 2, the first block's shortcut is a 1x1 convolution
    with BatchNorm.
    """

    def __init__(
        self,
        in_width: int,
        width: int,
        hidden: Sequence[int],
        kernel: Sides,
        stride: int = 1,
        stem: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.length, self.stem = len(hidden), stem
        self.shortcut = ConvBN(in_width, width, 1, stride) if stride != 1 else None
        for block, inner in enumerate(hidden):
            first, second = 2 * block + 1, 2 * block + 2
            self.add_module(f"conv{first}", _convolution(in_width, inner, kernel, stride if block == 0 else 1))
            self.add_module(f"bn{first}", nn.BatchNorm2d(inner))
            self.add_module(f"conv{second}", _convolution(inner, width, kernel))
            self.add_module(f"bn{second}", nn.BatchNorm2d(width))
            in_width = width

    def _layer(self, number: int, x: Tensor) -> Tensor:
        normed: Tensor = self.get_submodule(f"bn{number}")(self.get_submodule(f"conv{number}")(x))
        return normed

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = x if self.stem is None else self.stem(x)
        for block in range(self.length):
            residual = self._layer(2 * block + 2, functional.relu(self._layer(2 * block + 1, x)))
            beside = self.shortcut(x) if self.shortcut is not None and block == 0 else x
            x = functional.relu(residual + beside)
        return x


class Stem(nn.Module):
    """A ResNet's first convolution with BatchNorm and ReLU, and perhaps its 3x3 max-pool of stride 2."""

    def __init__(self, in_width: int, width: int, kernel: Sides, stride: int, pool: bool) -> None:
        super().__init__()
        self.conv = _convolution(in_width, width, kernel, stride)
        self.bn = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1) if pool else None

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = functional.relu(self.bn(self.conv(x)))
        return x if self.pool is None else self.pool(x)


class LinearStage(nn.Module):
    """Linear layers with ReLU on features [B, F], or on a map [B, C, H, W] as such (``flat`` False)."""

    def __init__(self, in_features: int, widths: Sequence[int], flat: bool) -> None:
        super().__init__()
        self.length, self.flat = len(widths), flat
        for number, width in enumerate(widths, 1):
            self.add_module(f"linear{number}", nn.Linear(in_features, width))
            in_features = width

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = x if self.flat else x.flatten(1)
        for number in range(1, self.length + 1):
            x = functional.relu(self.get_submodule(f"linear{number}")(x))
        return x


class Exit(nn.Module):
    """A classifier on what a stage gives: ``readout`` flatten or mean makes features of maps, none takes features.

    One linear layer follows. Public code has more before its early classifiers. DepthFL's has attention and separable
    convolutions. ScaleFL's has three 3x3 convolutions with BatchNorm, in its MSDNet two.
    """

    def __init__(self, features: int, classes: int, readout: str, dropout: float) -> None:
        super().__init__()
        self.readout = {"flatten": nn.Flatten, "mean": SpatialMean, "none": nn.Identity}[readout]()
        self.dropout = Dropout(dropout) if dropout else None
        self.linear = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = self.readout(x)
        return self.linear(x if self.dropout is None else self.dropout(x))


class ExitStack(nn.Module):
    """The logits [B, classes] of each exit -> [B, exits, classes]."""

    def forward(self, *logits: Tensor) -> Tensor:  # noqa: D102
        return torch.stack(logits, 1)


class LastExit(nn.Module):
    """In training, logits of all exits [..., exits, classes] -> those of the deepest; then there is one already."""

    def forward(self, logits: Tensor) -> Tensor:  # noqa: D102
        return logits[..., -1, :] if self.training else logits


class MultiExit(nn.Module):
    """In training [B, C, H, W] -> logits of all exits [B, exits, classes]; in evaluation -> [B, classes].

    ``parts``: stages and exits by name in the order of the forward pass, an exit reads what the stage before it gives.
    Evaluation gives the deepest exit's logits or, with ``mean``, the log of the mean of all exits' probabilities. In
    DepthFL (Kim et al., ICLR 2023), too, all exits predict together; its public code averages their logits.
    """

    def __init__(self, parts: Mapping[str, nn.Module], mean: bool) -> None:
        super().__init__()
        self.order, self.mean = tuple(parts), mean
        for name, part in parts.items():
            self.add_module(name, part)
        self.stack = ExitStack()

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        logits: list[Tensor] = []
        for name in self.order:
            part = self.get_submodule(name)
            if not isinstance(part, Exit):
                x = part(x)
            elif self.training or self.mean or name == self.order[-1]:
                logits.append(part(x))
        if self.training:
            return self.stack(*logits)
        if len(logits) == 1:
            return logits[0]
        return self.stack(*logits).log_softmax(2).logsumexp(1) - math.log(len(logits))
