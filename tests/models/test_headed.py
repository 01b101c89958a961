"""Networks with a common head: bodies of any family, equal heads, and the same side by side as one by one."""

import pytest
import torch

from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.families.headed import HEAD, body_of, headed
from models.side_by_side import assert_side_by_side_equals_one_by_one

SHAPE, CLASSES, WIDTH = (1, 18, 18), 5, 6
BODIES = ("lenet_6k", "nasbench201_base", "resnet18_speech", "single_exit_mlp", "vit_small")


def spec(body: str) -> ModelSpec:
    return headed(models.named_spec(body, SHAPE, CLASSES), WIDTH)


@pytest.mark.parametrize("body", BODIES)
def test_heads_are_alike_and_the_layout_has_every_tensor(body: str) -> None:
    headed_spec = spec(body)
    assert ModelSpec.from_json(headed_spec.to_json()) == headed_spec
    assert body_of(headed_spec)["num_classes"] == WIDTH
    state, layout = models.initial_state(headed_spec, 1), models.layout(headed_spec)
    assert state["head.weight"].shape == (CLASSES, WIDTH) and set(HEAD) <= state.keys()
    assert layout.keys() == state.keys()
    sizes: dict[str, int] = {}
    for name, axes in layout.items():
        assert len(axes) == state[name].dim()
        for axis, length in zip(axes, state[name].shape, strict=True):
            if axis is not None:
                assert sizes.setdefault(axis.group, length // axis.repeat) == length // axis.repeat, (name, axis)
    assert (sizes["representation"], sizes["classes"]) == (WIDTH, CLASSES)
    assert models.cost(headed_spec).forward_macs > models.cost(body_of(headed_spec)).forward_macs
    assert all(name.startswith("body.") for name in models.taps(headed_spec))
    module = models.build(headed_spec)
    assert all(name in dict(module.named_modules()) for name in models.taps(headed_spec))
    assert module.eval()(torch.zeros(2, *SHAPE)).shape == (2, CLASSES)


@pytest.mark.parametrize("body", ["lenet_6k", "nasbench201_base", "resnet18_speech", "single_exit_mlp"])
def test_side_by_side_equals_one_by_one(body: str) -> None:
    assert_side_by_side_equals_one_by_one(spec(body), SHAPE)
