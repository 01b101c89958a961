"""The scaler of families without BatchNorm."""

import torch
from torch.nn import functional

from fedscale_ext import models


def test_the_cnn_divides_hidden_activations_in_training_and_testing() -> None:
    spec = models.named_spec("cnn_small", (1, 8, 8), 5)
    scaled = models.scaled(spec, 0.5)
    assert scaled is not None
    plain, scaled_network = models.build(spec), models.build(scaled)
    scaled_network.load_state_dict(plain.state_dict())
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    h = functional.relu(functional.max_pool2d(plain.conv1(x) / 0.5, 2))
    h = functional.relu(functional.max_pool2d(plain.conv2(h) / 0.5, 2))
    expected = plain.linear2(functional.relu(plain.linear1(h.flatten(1)) / 0.5))
    torch.testing.assert_close(scaled_network(x), expected)
    assert not torch.allclose(scaled_network(x), plain(x))
    torch.testing.assert_close(scaled_network.eval()(x), expected)
    assert models.resized(scaled, {"conv1": 3})["scale"] == 0.5
    assert models.layout(scaled) == models.layout(spec) and models.cost(scaled) == models.cost(spec)


def test_families_with_batchnorm_have_none() -> None:
    assert models.scaled(models.named_spec("nasbench201_base", (1, 8, 8), 5), 0.5) is None
