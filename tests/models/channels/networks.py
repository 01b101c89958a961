"""Custom networks, as tests name them: ``tests.models.channels.networks:Net``."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

MULTIPLIED: dict[str, Callable[[Tensor], Tensor]] = {
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "interleave": lambda x: x.repeat_interleave(2, 1),
    "twice": lambda x: torch.cat([x, x], 1),
    "copies": lambda x: x[:, None].expand(-1, 2, -1, -1, -1).flatten(1, 2),
    "pairs": lambda x: x[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2),
}
"""Steps that repeat each channel."""

PADDED = {"pad behind": (0, 3), "pad in front": (2, 0), "shift": (-1, 1)}
"""Steps that pad channels, by the numbers in front and behind."""


class Net(nn.Module):
    """Convolutions, a shortcut, a depthwise convolution, a flattened map, dropout."""

    def __init__(self, num_classes: int, in_channels: int, width: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_channels, width, 3, padding=1)
        self.inner = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(2 * width)
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.outer = nn.Conv2d(2 * width, width, 1)
        self.hidden = nn.Linear(4 * width, 6)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(6, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = x + self.outer(self.depthwise(functional.relu(self.norm(self.inner(x)))))
        x = functional.adaptive_avg_pool2d(x, 2).flatten(1)
        return self.head(self.drop(self.hidden(x).relu()))


class LogProbabilities(Net):
    """It does something after its last layer."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.log_softmax(super().forward(x), 1)


class Logarithms(Net):
    """Its outputs are no numbers where features are negative."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(
            self.hidden(self.outer(self.depthwise(self.inner(self.stem(x)))).mean((2, 3)).repeat(1, 4)).log()
        )


class Reading(Net):
    """Its rates of dropout are items of a tensor, as many networks' are."""

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__(num_classes, in_channels)
        self.rates = [rate.item() for rate in torch.linspace(0, 0.1, 3)]


class Symbols(nn.Module):
    """It reads numbers of symbols."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        self.head = nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x.flatten(1).long()).mean(1))


class Fixed(nn.Module):
    """It names its number of channels in the forward pass."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.head = nn.Linear(16, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.conv(x), 2).view(-1, 16))


class Tied(nn.Module):
    """Tensors with several names: two convolutions share a weight, two normalisations a scale, a layer comes twice."""

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_channels, 4, 3, padding=1)
        self.one, self.two = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 3, padding=1)
        self.two.weight = self.one.weight
        self.inner, self.again = nn.Conv2d(4, 6, 1), nn.Conv2d(6, 6, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(6), nn.BatchNorm2d(6)])
        self.norms[1].weight = self.norms[0].weight
        self.third = self.again
        self.head = nn.Linear(6, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.two(self.one(torch.cat([x, x], 1)[:, :4]).relu())  # torch.cat fixes the trunk's channels
        x = self.norms[1](self.again(self.norms[0](self.inner(x)).relu()))
        return self.head(self.third(x.relu()).mean((2, 3)))


class Scaled(Net):
    """A buffer that is no part of its state scales its input; without dropout."""

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__(num_classes, in_channels)
        self.drop = nn.Identity()
        self.register_buffer("scale", torch.full((in_channels, 1, 1), 2.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * self.scale)


class TenClasses(nn.Module):
    """Its number of classes cannot be set."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1))


class Broken(nn.Module):
    """Its constructor fails."""

    def __init__(self) -> None:
        raise KeyError("no such thing")


class Random(nn.Module):
    """Operations drawn at random, in the order of ``steps``; every other one may be added to what came before."""

    def __init__(self, num_classes: int, in_channels: int, steps: tuple[str, ...], widths: tuple[int, ...]) -> None:
        super().__init__()
        self.steps, self.widths = steps, widths
        self.layers = nn.ModuleList()
        channels = in_channels
        for step, width in zip(steps, widths, strict=True):
            if step == "conv":
                self.layers.append(nn.Conv2d(channels, width, 3, padding=1))
                channels = width
            elif step == "depthwise":
                self.layers.append(nn.Conv2d(channels, channels, 3, padding=1, groups=channels))
            elif step == "several":
                self.layers.append(nn.Conv2d(channels, 2 * channels, 1, groups=channels))
                channels *= 2
            elif step == "norm":
                self.layers.append(nn.BatchNorm2d(channels))
            elif step == "shortcut":
                self.layers.append(
                    nn.Sequential(nn.Conv2d(channels, width, 1), nn.ReLU(), nn.Conv2d(width, channels, 1))
                )
            elif step == "gate":
                self.layers.append(nn.Sequential(nn.Conv2d(channels, width, 1), nn.Conv2d(width, channels, 1)))
            elif step == "concatenate":
                self.layers.append(nn.Conv2d(channels, width, 1))
                channels += width
            elif step == "spread":
                self.layers.append(nn.Conv2d(channels, 1, 1))
                channels = width
            elif step == "one slope":
                self.layers.append(nn.PReLU())
            elif step == "slopes":
                self.layers.append(nn.PReLU(channels))
            elif step in MULTIPLIED:
                self.layers.append(nn.Identity())
                channels *= 2
            elif step in PADDED:
                self.layers.append(nn.Identity())
                channels += sum(PADDED[step])
            elif step == "padded shortcut":  # ResNet's option A
                self.layers.append(nn.Conv2d(channels, channels + width, 3, padding=1, stride=2))
                channels += width
            else:
                self.layers.append(nn.Identity())
        self.scale = nn.Parameter(torch.rand(channels, 1, 1))
        self.head = nn.Linear(4 * channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        for step, layer, width in zip(self.steps, self.layers, self.widths, strict=True):
            if step == "shortcut":
                x = x + layer(x)
            elif step == "gate":
                x = x * torch.sigmoid(layer(x.mean((2, 3), keepdim=True)))
            elif step == "concatenate":
                x = torch.cat([x, layer(x)], 1)
            elif step == "shuffle":
                batch, channels, height, width = x.shape
                pairs = 2 if channels % 2 == 0 else 1
                x = x.view(batch, pairs, channels // pairs, height, width).transpose(1, 2).reshape(x.shape)
            elif step == "last":
                x = x.permute(0, 2, 3, 1).relu().permute(0, 3, 1, 2)
            elif step == "spread":
                x = layer(x).expand(-1, width, -1, -1)
            elif step in MULTIPLIED:
                x = MULTIPLIED[step](x)
            elif step in PADDED:
                x = functional.pad(x, (0, 0, 0, 0, *PADDED[step]), value=0.5)
            elif step == "padded shortcut":
                wider = layer(x)
                x = wider + functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, wider.shape[1] - x.shape[1]))
            else:
                x = layer(x)
        return self.head(functional.adaptive_avg_pool2d(x * self.scale, 2).flatten(1))


class Lazy(nn.Sequential):
    """A network that knows its number of inputs after its first pass only."""

    def __init__(self, num_classes: int):
        super().__init__(nn.Flatten(), nn.LazyLinear(num_classes))


class Frozen(nn.Sequential):
    """A network that nothing trains."""

    def __init__(self, num_classes: int):
        super().__init__(nn.Flatten(), nn.Linear(64, num_classes))
        self.requires_grad_(False)


class Noisy(nn.Sequential):
    """A network that makes a tensor in its forward pass."""

    def __init__(self, num_classes: int):
        super().__init__(nn.Flatten(), nn.Linear(64, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = super().forward(x)
        return output + torch.randn(output.shape[1])
