"""Feature taps: what families declare, and what is caught."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.models.families.nasbench201 import BASE_GENOTYPE
from fedscale_ext.models.taps import as_map, features, map_shapes
from tests.models.architectures import CLASSES, FAMILIES, SHAPE


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"custom_module"}))  # which knows no names of modules
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_every_family_declares_taps_that_change_nothing(family, data):
    spec = data.draw(FAMILIES[family])
    module, x = models.build(spec).eval(), torch.randn(3, *SHAPE)
    logits, tapped = features(module, x, models.taps(spec))
    assert torch.equal(logits, module(x)) and logits.shape == (3, CLASSES)
    assert tuple(tapped) == models.taps(spec) and not any(part._forward_hooks for part in module.modules())
    maps = [as_map(each, SHAPE[1] / SHAPE[2]) for each in tapped.values()]
    assert map_shapes(spec, models.taps(spec)) == tuple(tuple(each.shape[1:]) for each in maps)
    other = {name: each.clone() for name, each in models.build(spec).eval().state_dict().items()}
    replaced = models.build(spec).eval()
    replaced.load_state_dict(other)
    assert torch.equal(features(module, x, models.taps(spec), other)[0], replaced(x))


@pytest.mark.parametrize(
    ("name", "fields", "names"),
    [
        ("resnet_tiny", {"blocks": []}, ("stem",)),
        ("mobilenetv2_thin", {"blocks": []}, ("stem",)),
        ("mobilenetv3_small", {"blocks": []}, ("stem",)),
        ("nasbench201_base", {"stages": [[], [["c1", BASE_GENOTYPE, 16, False]]]}, ("stem", "cells.c1")),
        ("nasbench201_base", {"stages": [[], []]}, ("stem",)),
    ],
)
def test_a_network_without_blocks_has_the_taps_that_are_left(name, fields, names):
    spec = models.named_spec(name, SHAPE, CLASSES).replace(**fields)
    assert models.taps(spec) == names
    assert tuple(features(models.build(spec).eval(), torch.randn(2, *SHAPE), names)[1]) == names


def test_the_taps_of_moss():
    """Sheet of the paper's types: stem and stages, at 3x32x32."""
    expected = {
        "resnet18": [(64, 32), (64, 32), (128, 16), (256, 8), (512, 4)],
        "mobilenetv2": [(32, 32), (24, 32), (32, 16), (96, 8), (320, 4)],
        "lenet_80k": [(6, 32), (16, 16)],
    }
    for name, sizes in expected.items():
        spec = models.named_spec(name, (3, 32, 32), 10)
        assert map_shapes(spec, models.taps(spec)) == tuple((width, side, side) for width, side in sizes)


def test_tokens_become_the_grid_that_they_came_from():
    spec = models.named_spec("vit_small", (1, 49, 40), 35)
    assert map_shapes(spec, models.taps(spec)) == ((64, 13, 10),) * 3
    tokens = torch.arange(2 * 6 * 3.0).view(2, 6, 3)
    assert torch.equal(as_map(tokens, 1.5)[0, 1], tokens[0, :, 1].view(3, 2))
    assert as_map(tokens[:, 0], 1.0).shape == (2, 3, 1, 1)


def test_networks_with_several_exits_answer_with_the_deepest():
    spec = models.named_spec("multi_exit_vgg_small", (1, 16, 16), 4)
    module, x = models.build(spec).train(), torch.randn(3, 1, 16, 16)
    assert torch.equal(features(module, x, ("block1",))[0], module(x)[:, -1])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("conv1", "conv9"), r"no module 'conv9' to tap; did you mean 'conv\d'\?"),
        (("zzz",), r"no module 'zzz' to tap; it has conv1, "),
        (("conv1", "conv1"), "different modules"),
        ((), "at least one"),
    ],
)
def test_wrong_taps_are_one_sentence(names, message):
    spec = models.named_spec("cnn_small", (1, 12, 12), 4)
    with pytest.raises(UserError, match=message):
        map_shapes(spec, names)


@pytest.mark.parametrize(("model", "name"), [("resnet18_speech", "cells"), ("multi_exit_resnet18", "exit1")])
def test_a_module_that_the_network_does_not_run_is_one_sentence(model, name):
    spec = models.named_spec(model, (1, 32, 32), 10)
    with pytest.raises(UserError, match=f"module '{name}' cannot be tapped"):
        map_shapes(spec, (name,))


def test_a_family_without_taps_says_so():
    with pytest.raises(UserError, match="declare no feature taps"):
        models.taps(models.named_spec("torchvision_mobilenet_v2", (3, 32, 32), 5))


class _Given(nn.Module):
    def __init__(self, shape: str) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return {"tuple": (x, x), "5": x[:, None], "0": x.mean()}[self.shape]


@pytest.mark.parametrize(("shape", "said"), [("tuple", "a tuple"), ("5", "a tensor of 5 axes"), ("0", "of 0 axes")])
def test_an_output_that_is_no_map_tokens_or_features_is_refused(shape, said):
    with pytest.raises(UserError, match=f"module '0' cannot be tapped: its output is .*{said}"):
        features(nn.Sequential(_Given(shape)), torch.zeros(2, 1, 4, 4), ("0",))
