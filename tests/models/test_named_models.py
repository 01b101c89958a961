"""The named models: sizes, costs by hand, what small inputs change, and inputs that are too small."""

import pytest
import torch

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.models import registry
from fedscale_ext.models.cells import cell_family
from fedscale_ext.models.families import mobilenetv3, resnet, torchvision_models, vit
from fedscale_ext.models.families.nasbench201 import DOUBLINGS
from fedscale_ext.models.inputs import early_halvings

FEMNIST, CIFAR, SPEECH, OPENIMAGE = ((1, 28, 28), 62), ((3, 32, 32), 10), ((1, 49, 40), 35), ((3, 64, 64), 600)
TOO_SMALL = {
    "resnet18": (3, 8, 40),
    "resnet18_openimage": (3, 8, 8),
    "resnet18_speech": (1, 16, 99),
    "mobilenetv2": (3, 8, 8),
    "mobilenetv2_thin": (3, 4, 8),
    "mobilenetv3_small": (3, 8, 8),
    "vit_small": (1, 28, 7),
    "torchvision_mobilenet_v2": (3, 8, 8),
    "nasbench201_base": (1, 2, 28),
}


def cost(name, inputs):
    return models.cost(models.named_spec(name, *inputs))


@pytest.mark.parametrize(
    ("name", "inputs", "parameters"),
    [
        ("resnet18", ((3, 224, 224), 1000), 11_689_512),  # as published
        ("resnet18", CIFAR, 11_173_962),
        ("resnet18_speech", SPEECH, 67_955),
        ("resnet18_speech_8x", SPEECH, 529_706),
        ("resnet18_openimage", OPENIMAGE, 2_700_552),
        ("mobilenetv3_small", ((3, 224, 224), 1000), 2_542_856),  # as published
        ("mobilenetv3_small", CIFAR, 1_528_106),
        ("mobilenetv2", ((3, 224, 224), 1000), 3_504_872),  # as published
        ("mobilenetv2", CIFAR, 2_236_682),
        ("mobilenetv2_thin", CIFAR, 12_858),
        ("lenet_80k", CIFAR, 79_472),
        ("lenet_6k", ((1, 32, 32), 12), 5_662),
        ("vit_small", FEMNIST, 108_798),
    ],
)
def test_parameters(name, inputs, parameters):
    assert cost(name, inputs).parameters == parameters


def test_the_published_costs_of_photographs():
    assert cost("resnet18", ((3, 224, 224), 1000)).forward_macs == 1_814_073_344
    small = cost("mobilenetv3_small", ((3, 224, 224), 1000)).forward_macs
    assert int(small / 1e6) == 56  # Table 4 of the paper


def test_the_wider_model_for_speech_has_eight_times_the_macs():
    ratio = cost("resnet18_speech_8x", SPEECH).forward_macs / cost("resnet18_speech", SPEECH).forward_macs
    assert ratio == pytest.approx(8, rel=0.01)


def test_resnet_cost_by_hand():
    spec = resnet.make((2, 9, 8), 5, 4, [resnet.Block("a", 3, 4), resnet.Block("b", 7, 6, 2, True)])
    big, small = 9 * 8, 5 * 4
    stem, a = 9 * 2 * 4 * big, 9 * (4 * 3 + 3 * 4) * big
    b = (9 * 4 * 7 + 9 * 7 * 6 + 4 * 6) * small
    forward = stem + a + b + 6 * 5
    assert (models.cost(spec).forward_macs, models.cost(spec).training_macs) == (forward, 3 * forward - stem)


@pytest.mark.parametrize("dense", [False, True])
def test_mobilenetv3_cost_by_hand(dense):
    block = mobilenetv3.Block("a", 5, 7, 6, 2, "relu", 2, "conv", False)
    spec = mobilenetv3.make((2, 9, 8), 5, 4, 1, [block], 8, 3, dense)
    big, small = 9 * 8, 5 * 4
    stem = 9 * 2 * 4 * big
    inside = 4 * 7 * big + 25 * 7 * (7 if dense else 1) * small + 2 * 7 * 2 + 7 * 6 * small
    forward = stem + inside + 6 * 8 * small + 8 * 3 + 3 * 5
    assert (models.cost(spec).forward_macs, models.cost(spec).training_macs) == (forward, 3 * forward - stem)


def test_vit_cost_by_hand():
    spec = vit.make((2, 9, 8), 5, [("a", 3)], patch=4, width=6, head_dim=2, mlp=5)
    tokens = 3 * 2
    embed = 2 * 4 * 4 * 6 * tokens
    attention = tokens * 6 * (3 * 3 * 2) + 2 * 3 * tokens * tokens * 2 + tokens * (3 * 2) * 6
    forward = embed + attention + 2 * tokens * 6 * 15 + 6 * 5
    assert (models.cost(spec).forward_macs, models.cost(spec).training_macs) == (forward, 3 * forward - embed)


def test_fig_1bs_models_double_their_macs():
    macs = [cost(f"nasbench201_{times}x", FEMNIST).forward_macs for times in DOUBLINGS]
    assert len(macs) == 7
    assert macs[0] == cost("nasbench201_base", FEMNIST).forward_macs
    for times, forward_macs in zip(DOUBLINGS, macs, strict=True):
        assert forward_macs == pytest.approx(times * macs[0], rel=0.025)


@pytest.mark.parametrize(
    ("side", "halvings"), [(28, 0), (32, 0), (48, 0), (49, 1), (64, 1), (96, 1), (97, 2), (224, 2)]
)
def test_small_inputs_are_halved_less_at_first(side, halvings):
    assert early_halvings((1, side, side + 9), 2, 3) == early_halvings((1, side + 9, side), 2, 3) == halvings


@pytest.mark.parametrize("name", TOO_SMALL)
def test_inputs_that_are_too_small_for_the_depth_are_named(name):
    _, height, width = shape = TOO_SMALL[name]
    with pytest.raises(UserError, match=rf"{height}x{width} is too small, use at least \d+x\d+"):
        models.build(models.named_spec(name, shape, 5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: resnet.make((1, 9, 9), 3, 4, [resnet.Block("a", 2, 5)]), "projection flag"),
        (lambda: resnet.make((1, 9, 9), 3, 4, [resnet.Block("a", 2, 4), resnet.Block("a", 2, 4)]), "used twice"),
        (lambda: vit.make((1, 9, 9), 3, [("a", 2), ("a", 2)]), "different plain names"),
        (lambda: vit.make((1, 9, 9), 3, [("a.b", 2)]), "different plain names"),
        (lambda: inverted(width=5, residual=True), "cannot add"),
        (lambda: inverted(hidden=5, expand="none"), "without a convolution"),
        (lambda: inverted(activation="gelu"), "use relu or hardswish"),
        (lambda: inverted(expand="all"), "conv, none or adapter"),
        (lambda: inverted(cell_id="a b"), "plain name"),
        (lambda: torchvision_models.make("alexnet", (3, 64, 64), 5), "there are efficientnet_v2_s"),
    ],
)
def test_specs_that_do_not_fit_together_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


def inverted(**changes):
    block = mobilenetv3.Block("a", 3, 4, 4, 0, "relu", 1, "conv", False)._replace(**changes)
    return mobilenetv3.make((1, 9, 9), 3, 4, 1, [block], 5, 5)


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2", "mobilenetv3_small"])
@pytest.mark.parametrize("inputs", [CIFAR, OPENIMAGE, ((3, 128, 128), 7)])
def test_ours_cost_what_torchvisions_cost(name, inputs):
    theirs = cost(f"torchvision_{name.replace('mobilenetv', 'mobilenet_v')}", inputs)
    if (name, inputs) == ("resnet18", CIFAR):  # theirs keeps the 7x7 kernel
        assert cost(name, inputs).parameters == theirs.parameters - 3 * 64 * (49 - 9)
    else:
        assert cost(name, inputs) == theirs


@pytest.mark.parametrize("name", torchvision_models.NAMES)
def test_torchvisions_networks_take_any_channels_and_cannot_be_resized(name):
    spec = models.named_spec(f"torchvision_{name}", *SPEECH)
    module = registry.skeleton(spec)
    assert module(torch.empty(2, 1, 49, 40, device="meta")).shape == (2, 35)
    layout = models.layout(spec)
    assert {key: len(axes) for key, axes in layout.items()} == {k: t.dim() for k, t in module.state_dict().items()}
    assert models.group_widths(spec) == {}
    assert models.resized(spec, {}) is spec
    with pytest.raises(UserError, match="no cells"):
        cell_family(spec)


def test_torchvisions_first_strides_are_what_small_inputs_lose():
    for side, strides in ((32, (1, 1)), (64, (2, 1)), (128, (2, 2))):
        network = registry.skeleton(models.named_spec("torchvision_resnet18", (3, side, side), 5))
        assert (network.conv1.stride[0], network.maxpool.stride) == strides
    network = models.build(models.named_spec("torchvision_mobilenet_v3_small", (2, 32, 32), 5))
    assert network(torch.randn(2, 2, 32, 32)).shape == (2, 5)


@pytest.mark.parametrize("name", ["mobilenetv3_small", "resnet18_speech"])
def test_dense_networks_compute_the_same_without_grouped_convolutions(name):
    spec = models.named_spec(name, (2, 20, 18), 5)
    state = {k: t.double() if t.is_floating_point() else t for k, t in models.initial_state(spec, 4).items()}
    child_spec, child = models.dense(spec, state)
    assert (child_spec == spec) == (name == "resnet18_speech")
    old, new = models.build(spec).double(), models.build(child_spec).double()
    assert all(part.groups == 1 for part in new.modules() if isinstance(part, torch.nn.Conv2d))
    old.load_state_dict(state)
    new.load_state_dict(child)
    x = torch.randn(3, 2, 20, 18, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for train in (True, False):
        torch.testing.assert_close(new.train(train)(x), old.train(train)(x), atol=1e-9, rtol=0)
    assert models.dense(child_spec, child)[0] == child_spec


def test_a_family_that_cannot_be_made_dense_says_so():
    spec = models.named_spec("torchvision_mobilenet_v2", (3, 32, 32), 5)
    with pytest.raises(UserError, match="cannot be made dense"):
        models.dense(spec, {})
