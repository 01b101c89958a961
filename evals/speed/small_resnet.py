"""The "modified smaller ResNet-18" of FedTrans's Speech Commands as a plain module, for measurements only."""

from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != width:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(out + self.shortcut(x))


class SmallResNet18(nn.Module):
    """Four stages of two blocks; with ``width`` 6 about 100,000 parameters."""

    def __init__(self, channels: int, classes: int, width: int = 6) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        blocks: list[nn.Module] = []
        inside = width
        for stage, own in enumerate(widths):
            blocks += [Block(inside, own, 2 if stage else 1), Block(own, own, 1)]
            inside = own
        self.blocks = nn.Sequential(*blocks)
        self.linear = nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.blocks(self.stem(x)).mean((2, 3)))
