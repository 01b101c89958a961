"""Networks that hold several operators for each layer, and run the one that was chosen last."""

import functools
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.layers.parts import SpatialMean
from fedscale_ext.models.supernet.operators import REDUCTIONS, ConvBNReLU, LayerShape, Maker
from fedscale_ext.models.supernet.spaces import FORMS, layer_shapes, mixture, stages


class Layer(nn.Module):
    """The candidate operators of a layer by name; the chosen one runs, the others are not touched."""

    def __init__(self, layer: LayerShape, names: Sequence[str], makers: Iterable[Maker]) -> None:
        super().__init__()
        # a plain dictionary, so that operators that are not held are not registered
        self._all = {name: maker(layer) for name, maker in zip(names, makers, strict=True)}
        self.hold(names)

    def hold(self, names: Sequence[str]) -> None:
        """Hold only these of the operators that it was built with; none is chosen unless there is only one."""
        self._modules.clear()
        self._modules.update({name: operator for name, operator in self._all.items() if name in names})
        self.names = tuple(self._modules)
        self.chosen: str | None = self.names[0] if len(self.names) == 1 else None

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if self.chosen is None:
            raise RuntimeError("this network holds several operators per layer: choose a path before it runs")
        return self.run(self.chosen, x)

    def run(self, name: str, x: Tensor) -> Tensor:
        """One of the operators that it holds."""
        output: Tensor = self._modules[name](x)  # type: ignore[misc]
        return output


def _layers(spec: ModelSpec) -> nn.ModuleList:
    known = FORMS[spec["form"]]
    return nn.ModuleList(
        Layer(layer, held, [known[name] for name in held])
        for layer, held in zip(layer_shapes(spec), spec["ops"], strict=True)
    )


class Searchable(nn.Module):
    """Base of supernets: their layers, and the choice of a path through them."""

    layers: nn.ModuleList
    alphas: nn.ParameterList  # of a mixture that learns its weights, one for each layer
    mixture: str | None = None

    def _mix(self, spec: ModelSpec) -> None:
        self.mixture = mixture(spec)
        if self.mixture == "alphas":  # nearly equal ones at first, as DARTS has them
            self.alphas = nn.ParameterList(nn.Parameter(1e-3 * torch.randn(len(held))) for held in spec["ops"])

    def _run(self, number: int, x: Tensor) -> Tensor:
        """A layer: its chosen operator; in a mixture the weighted mean of all that it holds."""
        layer = self.layers[number]
        if self.mixture is None or not isinstance(layer, Layer):
            output: Tensor = layer(x)
            return output
        shares = [1 / len(layer.names)] * len(layer.names) if self.mixture == "equal" else self._shares(number, layer)
        parts = (share * layer.run(name, x) for share, name in zip(shares, layer.names, strict=True))
        return functools.reduce(torch.add, parts)

    def _shares(self, number: int, layer: Layer) -> Tensor:
        if len(layer.names) != len(self.alphas[number]):
            raise RuntimeError("a mixture by alphas runs with all of its operators")
        return self.alphas[number].softmax(0)

    def hold(self, ops: Sequence[Sequence[str]]) -> None:
        """Restrict the network to a subspace, or a path, of the operators that it was built with.

        The tensors of other operators are set aside. Nothing is built, and the chosen path is reset.

        Args:
            ops: Names of the operators of each layer.

        """
        for layer, names in zip(cast(Sequence[Layer], self.layers), ops, strict=True):
            layer.hold(names)

    def choose(self, path: Sequence[str]) -> None:
        """Choose the path that the network runs from now on.

        Args:
            path: One operator name per layer.

        Raises:
            ValueError: If the network does not hold the path.

        """
        if len(path) != len(self.layers):
            raise ValueError(f"the path has {len(path)} operators; this network has {len(self.layers)} layers")
        layers = cast(Sequence[Layer], self.layers)
        for number, (layer, name) in enumerate(zip(layers, path, strict=True)):
            if name not in layer.names:
                raise ValueError(f"layer {number} has no operator {name!r}; it holds {', '.join(layer.names)}")
        for layer, name in zip(layers, path, strict=True):
            layer.chosen = name


class ConvolutionNet(Searchable):
    """[B, C, H, W] -> [B, classes]: stem, groups of layers with a reduction behind each, mean, linear."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        width, stride = spec["stem"]
        self.blocks = tuple(spec["blocks"])
        self.stem = ConvBNReLU(spec["input_shape"][0], width, 3, stride)
        self.layers = _layers(spec)
        self.reductions = nn.ModuleList(
            REDUCTIONS[kind](shape, after, step)
            for shape, (kind, after, step) in zip(stages(spec), spec["reductions"], strict=False)
        )
        self.mean, self.classifier = SpatialMean(), nn.Linear(spec["reductions"][-1][1], spec["num_classes"])
        self._mix(spec)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x, done = self.stem(x), 0
        for count, reduction in zip(self.blocks, self.reductions, strict=True):
            for number in range(done, done + count):
                x = self._run(number, x)
            x, done = reduction(x), done + count
        return self.classifier(self.mean(x))


class RecurrentNet(Searchable):
    """Predicts the symbol that follows: numbers of symbols [B, ...] -> logits [B, classes] after the last symbol.

    With ``readout`` all, logits in training are [B, T, classes], after each symbol. Each stage is the sum of two layers
    with the same input. Symbols are whole numbers of any dtype; unknown ones are clamped to the nearest known.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.symbols, self.everywhere = spec["symbols"], spec["readout"] == "all"
        self.stem = nn.Embedding(spec["symbols"], spec["embedding"])
        self.layers = _layers(spec)
        self.classifier = nn.Linear(spec["hidden"], spec["num_classes"])
        self._mix(spec)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = self.stem(x.flatten(1).to(torch.int64).clamp(0, self.symbols - 1))
        for number in range(0, len(self.layers), 2):
            x = self._run(number, x) + self._run(number + 1, x)
        return self.classifier(x if self.everywhere and self.training else x[:, -1])
