"""Strided 1x1 convolutions with few input channels: oneDNN's gradient writes past a buffer of its own."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.models.layers import strided
from fedscale_ext.models.stacked.network import Mapped, stacked
from fedscale_ext.training.resident import Cohort, Resident

Convolve = Callable[..., Tensor]

CPU = torch.device("cpu")
SHAPE = (4, 14, 14)


def network() -> nn.Module:
    shortcut = nn.Conv2d(4, 8, 1, 2, bias=False)
    return nn.Sequential(nn.Conv2d(4, 4, 3, 1, 1), nn.ReLU(), shortcut, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def train_resident() -> None:
    module = Resident(network(), CPU, channels_last=True).module
    for _ in range(10):
        module(torch.randn(8, *SHAPE).contiguous(memory_format=torch.channels_last)).sum().backward()


def train_cohort() -> None:
    form = stacked(network(), SHAPE)
    assert form is not None
    for _ in range(10):
        Cohort(form, network(), SHAPE, 1, CPU, channels_last=True)


def train_mapped() -> None:
    for _ in range(10):
        Cohort(Mapped(network()), network(), SHAPE, 1, CPU, channels_last=True)


@pytest.mark.second_tier
@pytest.mark.parametrize("form", ["resident", "cohort", "mapped"])
def test_the_gradient_with_one_thread_crashes_no_process(form: str) -> None:
    script = f"import torch; torch.set_num_threads(1); from tests.models.layers.test_strided import *; train_{form}()"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr)


def gradients(conv: Convolve, x: Tensor, weight: Tensor, stride: int, padding: int, groups: int) -> list[Tensor]:
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = conv(x, weight, None, (stride, stride), (padding, padding), (1, 1), groups)
    toward = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, (x, weight), toward.contiguous(memory_format=torch.channels_last))]


def inputs(channels: int, groups: int, kernel: int, size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, size, size, channels * groups, generator=generator).movedim(-1, 1)
    return x, torch.randn(8 * groups, kernel, kernel, channels, generator=generator).movedim(-1, 1)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 6, 7])
def test_few_channels_have_the_gradient_of_double_precision(channels: int) -> None:
    x, weight = inputs(channels, 1, 1, 6)
    computed = gradients(strided.conv2d, x, weight, 2, 0, 1)
    expected = gradients(functional.conv2d, x.double(), weight.double(), 2, 0, 1)
    for one, other in zip(computed, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "groups", "kernel", "stride", "size"),
    [(16, 1, 1, 2, 6), (4, 3, 1, 2, 6), (4, 1, 3, 2, 6), (4, 1, 1, 1, 6), (4, 1, 1, 2, 7)],
)
def test_other_shapes_compute_as_torch_does(channels: int, groups: int, kernel: int, stride: int, size: int) -> None:
    x, weight = inputs(channels, groups, kernel, size)
    computed = gradients(strided.conv2d, x, weight, stride, kernel // 2, groups)
    expected = gradients(functional.conv2d, x, weight, stride, kernel // 2, groups)
    assert all(torch.equal(one, other) for one, other in zip(computed, expected, strict=True))


def test_only_convolutions_that_may_be_affected_are_guarded() -> None:
    affected, grouped, wide, large, whole = (
        nn.Conv2d(4, 8, 1, 2), nn.Conv2d(4, 8, 1, 2, groups=2), nn.Conv2d(16, 8, 1, 2), nn.Conv2d(4, 8, 3, 2),
        nn.Conv2d(4, 8, 1),
    )  # fmt: skip
    module = nn.ModuleList([affected, grouped, wide, large, whole])
    strided.guard(module)
    assert ["_conv_forward" in vars(conv) for conv in module] == [True, False, False, False, False]
