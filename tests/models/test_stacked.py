"""The stacked form of any architecture computes what its clients compute one by one, and the same gradients."""

import pytest
import torch
from hypothesis import given, settings
from torch import nn

from fedscale_ext import models
from fedscale_ext.models.stacked.layers import Convolution
from fedscale_ext.models.stacked.network import Stacked, stacked

from .architectures import FAMILIES, SHAPE

CLIENTS, BATCH = 3, 4


def tensors(spec):
    """[K, *shape] of clients who have not started alike."""
    states = [models.initial_state(spec, seed) for seed in range(CLIENTS)]
    return {
        name: torch.stack([state[name].double() for state in states])
        for name, tensor in states[0].items()
        if tensor.is_floating_point()
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_side_by_side_equals_one_by_one(family):
    @given(spec=FAMILIES[family])
    @settings(deadline=None, derandomize=True, max_examples=12)
    def check(spec):
        network, module = stacked(models.build(spec).double(), SHAPE), models.build(spec).double()
        # cells without a way make zeros, and networks of one's own have operations of any kind: mapped
        assert family in ("nasbench201", "custom_module") or isinstance(network, Stacked)
        start, trainable = tensors(spec), models.parameter_names(spec)
        together = {name: tensor.clone().requires_grad_(name in trainable) for name, tensor in start.items()}
        x = torch.randn(BATCH, CLIENTS, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        network.bind(together, CLIENTS)
        outputs = network(x)
        outputs.square().sum().backward()
        for client in range(CLIENTS):
            module.load_state_dict({name: tensor[client] for name, tensor in start.items()}, strict=False)
            module.zero_grad()
            output = module.train()(x[:, client])
            output.square().sum().backward()
            torch.testing.assert_close(outputs[client], output, atol=1e-9, rtol=1e-9)
            for name, tensor in module.named_parameters():
                if tensor.grad is not None:  # a cell may have parts that lead nowhere
                    torch.testing.assert_close(together[name].grad[client], tensor.grad, atol=1e-9, rtol=1e-7)
            for name, tensor in module.named_buffers():
                if name in together:
                    torch.testing.assert_close(together[name][client], tensor, atol=1e-9, rtol=1e-9)

    check()


def test_one_output_channel_of_one_client_on_one_sample_has_a_gradient():
    """torch has a kernel of its own for so little, which refuses the strides that flattened axes of size 1 get."""
    conv, memory = nn.Conv2d(3, 1, 3, padding=1, bias=False), torch.randn(27)
    weight = memory.view(1, 1, 3, 3, 3).movedim(-1, -3).requires_grad_()  # [K, out, in, h, w], channels_last
    layer = Convolution("conv", conv)
    layer.bind({"conv.weight": weight}, 1, None)
    x = torch.randn(1, 3, 4, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x).square().sum(), weight)
    conv.weight.data.copy_(weight[0].detach())
    conv(x).square().sum().backward()
    torch.testing.assert_close(gradient[0], conv.weight.grad)
