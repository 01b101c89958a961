"""Second derivatives are torch's, of what is ours while they are made."""

import copy
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp
from torch.overrides import TorchFunctionMode

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.moss.batch_norm import batch_norm
from fedscale_ext.methods.moss.convolutions import grouped_conv2d
from fedscale_ext.methods.moss.params import check_derivatives
from fedscale_ext.methods.moss.twice_differentiable import TwiceDifferentiable


def _drawn(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(2, 3))
def test_batch_norm_has_the_derivatives_of_finite_differences(
    batch: int, channels: int, height: int, width: int
) -> None:
    inputs = _drawn((batch, channels, height, width), (channels,), (channels,))
    assert torch.autograd.gradcheck(lambda *each: batch_norm(*each, 1e-2), inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda *each: batch_norm(*each, 1e-2), inputs, fast_mode=True)


@pytest.mark.parametrize(("groups", "stride", "padding"), [(2, 1, 1), (4, 2, 0)])
def test_grouped_convolutions_have_the_derivatives_of_finite_differences(
    groups: int, stride: int, padding: int
) -> None:
    inputs = _drawn((2, 4, 5, 4), (8, 4 // groups, 3, 3), (8,))

    def convolution(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return grouped_conv2d(x, w, bias, (stride,) * 2, (padding,) * 2, (1, 1), groups)

    torch.testing.assert_close(convolution(*inputs), nn.functional.conv2d(*inputs, stride, padding, 1, groups))
    assert torch.autograd.gradgradcheck(convolution, inputs, fast_mode=True)


def test_a_convolution_may_be_called_with_plain_numbers() -> None:
    inputs = _drawn((2, 4, 5, 4), (4, 1, 3, 3))

    def convolution(x: Tensor, w: Tensor) -> Tensor:
        with TwiceDifferentiable():
            return nn.functional.conv2d(x, w, None, 1, 1, 1, 4)

    torch.testing.assert_close(convolution(*inputs), nn.functional.conv2d(*inputs, None, 1, 1, 1, 4))
    assert torch.autograd.gradgradcheck(convolution, inputs, fast_mode=True)


MASK = torch.tensor([[True, False, True], [True, True, False], [False, True, True]])
CURVED = {
    "hardswish": (nn.functional.hardswish, 1),
    "hardsigmoid": (nn.functional.hardsigmoid, 1),
    "attention": (nn.functional.scaled_dot_product_attention, 3),
    "masked attention": (partial(nn.functional.scaled_dot_product_attention, attn_mask=MASK, scale=0.3), 3),
    "causal attention": (partial(nn.functional.scaled_dot_product_attention, is_causal=True), 3),
    "an encoder": (nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True).double(), 1),
}


@pytest.mark.parametrize("name", CURVED)
def test_operations_that_torch_differentiates_once_are_differentiated_twice(name: str) -> None:
    operation, count = CURVED[name]
    inputs = _drawn(*[(2, 3, 4)] * count)

    def run(*inputs: Tensor) -> Tensor:
        with TwiceDifferentiable():
            return operation(*inputs)

    torch.testing.assert_close(run(*inputs), operation(*inputs))
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


class Direct(nn.Module):
    """Calls an operation of torch that has no second derivative, past torch's functions."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return torch._C._nn.hardsigmoid(self.linear(x.flatten(1)))


def test_a_network_without_second_derivatives_is_refused() -> None:
    spec = models.named_spec("tests.methods.moss.test_twice_differentiable:Direct", (1, 8, 8), 4)
    with pytest.raises(UserError, match="bilevel needs second derivatives, and this network has none"):
        check_derivatives("moss.types", "mine", spec)
    for name in ("mobilenetv3_small", "vit_small", "single_exit_mlp"):
        check_derivatives("moss.types", name, models.named_spec(name, (3, 32, 32), 4))


class _Nothing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def _network(**norm: object) -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Conv2d(4, 8, 3, groups=4, bias=False), nn.BatchNorm2d(8, **norm), nn.ReLU6(), nn.Conv2d(8, 6, 1)]  # type: ignore[arg-type]
    return nn.Sequential(*layers, nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(24, 3)).double()


@pytest.mark.parametrize("norm", [{}, {"affine": False}, {"track_running_stats": False}, {"momentum": None}])
@pytest.mark.parametrize("training", [True, False])
def test_a_networks_second_derivatives_are_torchs(norm: dict[str, object], training: bool) -> None:
    network = _network(**norm).train(training)
    theta = {name: each.detach() for name, each in network.named_parameters()}
    x, along = (
        torch.randn(5, 4, 4, 4, dtype=torch.float64),
        {name: torch.randn_like(tensor) for name, tensor in theta.items()},
    )
    target = torch.tensor([0, 1, 2, 1, 0])

    def loss(theta: dict[str, Tensor], x: Tensor) -> Tensor:
        buffers = {name: each.clone() for name, each in network.named_buffers()}
        return nn.functional.cross_entropy(functional_call(network, {**theta, **buffers}, (x,)), target)

    derivatives = []
    for mode in (_Nothing, TwiceDifferentiable):
        with mode():
            slope, back, *_ = vjp(grad(loss), theta, x)
        derivatives.append(
            {**slope, **{f"{name}, curved": each for name, each in back(along)[0].items()}, "x": back(along)[1]}
        )
    assert derivatives[0].keys() == derivatives[1].keys()
    for name, each in derivatives[0].items():
        torch.testing.assert_close(derivatives[1][name], each, msg=lambda text, name=name: f"{name}: {text}")


def test_running_statistics_stay() -> None:
    network = _network()
    held = copy.deepcopy(network.state_dict())
    with TwiceDifferentiable():
        network(torch.randn(5, 4, 4, 4, dtype=torch.float64))
    statistics = [name for name in held if name.endswith(("running_mean", "running_var"))]
    assert len(statistics) == 4
    assert all(torch.equal(held[name], network.state_dict()[name]) for name in statistics)


def test_one_value_of_each_channel_is_torchs_error() -> None:
    with TwiceDifferentiable(), pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm2d(3)(torch.zeros(1, 3, 1, 1))
