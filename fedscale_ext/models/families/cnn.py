"""Two convolutions and two linear layers without BatchNorm: LEAF's CNN and a small one for FedAvg.

Fields of the spec: ``input_shape`` (C, H, W), ``num_classes``, ``widths`` (of the two
convolutions), ``kernels`` (odd, size-keeping), ``hidden`` (width of the first linear layer); where there is one,
``scale``: hidden activations are divided by it (HeteroFL's scaler).
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Axis, Layout, ModelSpec


class CNN(nn.Module):
    """[B, C, H, W] -> [B, classes]."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        (first, second), kernels = spec["widths"], spec["kernels"]
        self.conv1 = nn.Conv2d(spec["input_shape"][0], first, kernels[0], padding=kernels[0] // 2)
        self.conv2 = nn.Conv2d(first, second, kernels[1], padding=kernels[1] // 2)
        self.linear1 = nn.Linear(second * _positions(spec), spec["hidden"])
        self.linear2 = nn.Linear(spec["hidden"], spec["num_classes"])
        scale: Any = dict(spec.fields).get("scale", 1.0)
        self.factor = 1.0 / scale

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        # ReLU and max-pool commute; pooling first leaves a quarter of the entries for the ReLU.
        x = self._scaled(functional.relu(functional.max_pool2d(self.conv1(x), 2)))
        x = self._scaled(functional.relu(functional.max_pool2d(self.conv2(x), 2)))
        return self.linear2(self._scaled(functional.relu(self.linear1(x.flatten(1)))))

    def _scaled(self, x: Tensor) -> Tensor:
        # behind the ReLU, with which a positive factor commutes: fewer entries than before the pooling
        return x if self.factor == 1.0 else x * self.factor


def _positions(spec: ModelSpec) -> int:
    """Entries of one channel's map behind both max-pools."""
    _, height, width = spec["input_shape"]
    if height < 4 or width < 4:
        raise UserError(f"a cnn halves its input twice; {height}x{width} is too small, use at least 4x4")
    return (height // 4) * (width // 4)


def _spec(
    widths: tuple[int, int], kernels: tuple[int, int], hidden: int, shape: tuple[int, int, int], classes: int
) -> ModelSpec:
    return ModelSpec.make("cnn", input_shape=shape, num_classes=classes, widths=widths, kernels=kernels, hidden=hidden)


def leaf(input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """LEAF's FEMNIST CNN (Caldas et al. 2018): 6,603,710 parameters at 1x28x28, 62 classes."""
    return _spec((32, 64), (5, 5), 2048, input_shape, num_classes)


def small(input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """A CNN of about 50k parameters at 1x28x28, 62 classes."""
    return _spec((16, 32), (5, 3), 28, input_shape, num_classes)


def lenet_80k(input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """LeNet's convolutions (6 and 16 channels of 5x5): 79,472 parameters at 3x32x32, 10 classes.

    Moss's Small type on CIFAR-10; its text names no widths. The Small row of Table 4 (IMWUT 2025) has multiples of
    0.305 MB: its 3.7 MB are 12 rounds.
    """
    return _spec((6, 16), (5, 5), 74, input_shape, num_classes)


def lenet_6k(input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """A LeNet of 5,662 parameters at 1x32x32, 12 classes: Moss's Small type on speech and depth images ("5.7K")."""
    return _spec((4, 8), (5, 3), 10, input_shape, num_classes)


FIELDS = ("input_shape", "num_classes", "widths", "kernels", "hidden", "scale")
NAMED = {"cnn_leaf": leaf, "cnn_small": small, "lenet_80k": lenet_80k, "lenet_6k": lenet_6k}


def build(spec: ModelSpec) -> nn.Module:
    """Build the network of a spec, with torch's own initialisation."""
    return CNN(spec)


def layout(spec: ModelSpec) -> Layout:
    """Return the axes of every tensor; linear1 reads each channel of conv2 at every position of its map."""
    chain = [
        ("conv1", "input", 1),
        ("conv2", "conv1", 1),
        ("linear1", "conv2", _positions(spec)),
        ("linear2", "linear1", 1),
    ]
    axes: Layout = {}
    for name, source, repeat in chain:
        out = Axis("classes" if name == "linear2" else name, "out")
        kernel = (None, None) if name.startswith("conv") else ()
        axes[f"{name}.weight"] = (out, Axis(source, "in", repeat), *kernel)
        axes[f"{name}.bias"] = (out,)
    return axes


def resized(spec: ModelSpec, widths: Mapping[str, int]) -> ModelSpec:
    """Return the spec with other numbers of channels by group (:func:`fedscale_ext.models.resized`)."""
    first, second = spec["widths"]
    return spec.replace(
        widths=(widths.get("conv1", first), widths.get("conv2", second)),
        hidden=widths.get("linear1", spec["hidden"]),
    )


def scaled(spec: ModelSpec, rate: float) -> ModelSpec:
    """Return the spec whose hidden activations are divided by ``rate``."""
    return spec.replace(scale=rate)


def taps(spec: ModelSpec) -> tuple[str, ...]:
    """Both convolutions, before ReLU and pool."""
    return "conv1", "conv2"
