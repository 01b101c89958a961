"""Whether networks of several clients compute the same side by side as one by one."""

import torch

from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.stacked.network import Stacked, stacked


def assert_side_by_side_equals_one_by_one(spec: ModelSpec, shape: tuple[int, int, int] = (1, 18, 18)) -> None:
    """Two clients' outputs are the same to 1e-9 in training mode, whether their networks are stacked or not."""
    network, module = stacked(models.build(spec).double(), shape), models.build(spec).double().train()
    assert isinstance(network, Stacked)
    states = [models.initial_state(spec, seed) for seed in (1, 2)]
    held = {
        name: torch.stack([state[name].double() for state in states])
        for name, tensor in states[0].items()
        if tensor.is_floating_point()
    }
    network.bind(held, 2)
    x = torch.randn(3, 2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    outputs = network(x)
    for client, state in enumerate(states):
        module.load_state_dict({name: tensor.double() for name, tensor in state.items()}, strict=False)
        torch.testing.assert_close(outputs[client], module(x[:, client]), atol=1e-9, rtol=1e-9)
