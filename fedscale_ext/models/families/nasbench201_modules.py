"""The torch modules of :mod:`fedscale_ext.models.families.nasbench201`."""

from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.models.families.genotype import EDGES, KERNEL, Genotype
from fedscale_ext.models.layers.parts import ConvBN, SpatialMean


def edge_name(source: int, target: int) -> str:
    """Name of an edge inside the names of tensors."""
    return f"e{source}{target}"


class Keep(nn.Module):
    """A skip or 3x3 average pool; ``adapter`` maps between different channels."""

    def __init__(self, in_width: int, width: int, pool: bool, adapter: bool) -> None:
        super().__init__()
        self.pool = pool
        self.adapter = nn.Conv2d(in_width, width, 1, bias=False) if adapter else None

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if self.pool:
            x = functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return x if self.adapter is None else self.adapter(x)


class Cell(nn.Module):
    """Four nodes; all but the input have ``width`` channels."""

    def __init__(self, genotype: Genotype, in_width: int, width: int, adapter: bool) -> None:
        super().__init__()
        self.width = width
        self.convs = [edge for edge in EDGES if genotype[edge] in KERNEL]
        for edge in EDGES:
            operation, channels = genotype[edge], in_width if edge[0] == 0 else width
            if operation in KERNEL:
                self.add_module(edge_name(*edge), ConvBN(channels, width, KERNEL[operation]))
            elif operation != "none":
                pool = operation == "avg_pool_3x3"
                self.add_module(edge_name(*edge), Keep(channels, width, pool, adapter and edge[0] == 0))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        nodes: list[Tensor | None] = [x]
        active: dict[int, Tensor] = {}  # ReLU of a node, computed once for all its convolutions
        for target in (1, 2, 3):
            total: Tensor | None = None
            for source in range(target):
                edge = self._modules.get(edge_name(source, target))
                if edge is None:
                    continue
                value = self._value(nodes, source)
                if (source, target) in self.convs:
                    if source not in active:
                        active[source] = functional.relu(value)
                    value = active[source]
                total = edge(value) if total is None else total + edge(value)
            nodes.append(total)
        return self._value(nodes, 3)

    def _value(self, nodes: list[Tensor | None], node: int) -> Tensor:
        """A node's value: zero, made only where somebody reads it, when no edge leads to it."""
        value, x = nodes[node], nodes[0]
        assert x is not None
        return x.new_zeros(x.shape[0], self.width, *x.shape[2:]) if value is None else value


class Reduction(nn.Module):
    """Residual block that halves height and width (rounding up, so that odd sizes work too)."""

    def __init__(self, in_width: int, width: int) -> None:
        super().__init__()
        self.a = ConvBN(in_width, width, 3, stride=2)
        self.b = ConvBN(width, width, 3)
        self.shortcut = nn.Conv2d(in_width, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        residual = self.b(functional.relu(self.a(functional.relu(x))))
        return residual + self.shortcut(functional.avg_pool2d(x, 2, 2, ceil_mode=True))


class Head(nn.Module):
    """BatchNorm, ReLU, global average pool, linear."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(width)
        self.mean = SpatialMean()
        self.linear = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.linear(self.mean(functional.relu(self.bn(x))))


class Network(nn.Module):
    """Stem, parts in the order of :meth:`append`, head; input [B, C, H, W], output [B, classes]."""

    def __init__(self, in_channels: int, stem: int) -> None:
        super().__init__()
        self.stem = ConvBN(in_channels, stem, 3)
        self.cells, self.reductions = nn.ModuleDict(), nn.ModuleDict()
        self.order: list[tuple[str, str]] = []

    def append(self, name: str, part: nn.Module) -> None:
        """Put a part named ``cells.<id>`` or ``reductions.<number>`` behind the others."""
        kind, key = name.split(".")
        self.get_submodule(kind).add_module(key, part)
        self.order.append((kind, key))

    def finish(self, width: int, num_classes: int) -> None:
        """Add the head behind the last part."""
        self.head = Head(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = self.stem(x)
        for kind, key in self.order:
            x = (self.cells if kind == "cells" else self.reductions)[key](x)
        return self.head(x)
