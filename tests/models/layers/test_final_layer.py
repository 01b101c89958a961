"""The last linear layer of a network, and its inputs."""

import pytest
import torch

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.models.families.headed import headed
from fedscale_ext.models.layers.final_layer import deepest, final_layer, input_of

SHAPE = (1, 28, 28)
LAYERS = {
    "cnn_small": ("linear2", 28),
    "nasbench201_base": ("head.linear", 16),
    "mobilenetv3_small": ("head.linear", 1024),
    "vit_small": ("head", 64),
    "single_exit_cnn3": ("exit3.linear", 576),
    "multi_exit_cnn3": ("exit3.linear", 576),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_logits_are_the_layers_outputs_of_its_inputs(name: str) -> None:
    spec = models.named_spec(name, SHAPE, 10)
    layer = final_layer(spec)
    assert (layer.name, layer.width, layer.biased) == (*LAYERS[name], True)
    module = models.build(spec).eval()
    part = module.get_submodule(layer.name)
    with torch.no_grad(), input_of(part) as last:
        logits = module(torch.randn(3, *SHAPE))
    state = module.state_dict()
    expected = last.features @ state[layer.tensors["weight"]].T + state[layer.tensors["bias"]]
    assert last.features.shape == (3, layer.width)
    torch.testing.assert_close(logits, expected)


def test_a_headed_networks_features_are_its_representation() -> None:
    spec = headed(models.named_spec("single_exit_cnn3", SHAPE, 10), 7)
    assert (final_layer(spec).name, final_layer(spec).width) == ("head", 7)
    module = models.build(spec)
    with input_of(module.get_submodule("head")) as last:
        module(torch.randn(4, *SHAPE))  # in training mode there is an axis of exits
    assert last.features.shape == (4, 1, 7) and torch.equal(deepest(last.features, 2), last.features[:, 0])


def test_the_deepest_exit_counts() -> None:
    exits = torch.arange(12.0).view(2, 3, 2)
    assert deepest(exits, 2).tolist() == [[4.0, 5.0], [10.0, 11.0]]
    assert deepest(exits, 3) is exits


def test_a_network_that_ends_otherwise_is_refused() -> None:
    with pytest.raises(UserError, match=r"family '\w+' does not end in a linear layer from features to the classes"):
        final_layer(models.named_spec("models.layers.test_final_layer:Ends", SHAPE, 10))


class Ends(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).mean((2, 3))
