"""Whose devices a job with narrower versions has."""

from typing import Any

import pytest

from fedscale_ext import models
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.submodels import narrowed
from methods.harness import server


@pytest.mark.parametrize(("name", "keys", "rate"), [
    ("heterofl", {}, 0.0625), ("fjord", {}, 0.2), ("splitmix", {}, 0.125), ("fluid", {}, 0.5),
    ("heterofl", {"rates": [1, 0.5]}, 0.5), ("fjord", {"p": [1, 0.5]}, 0.5), ("splitmix", {"r": 0.5}, 0.5),
    ("fluid", {"p": [0.9, 0.25]}, 0.25),
])  # fmt: skip
def test_the_weakest_device_affords_the_narrowest_version(name: str, keys: dict[str, Any], rate: float) -> None:
    made = server(method_class(name), name, **keys)
    assert made.smallest_spec() == narrowed(made.initial_spec(), rate)


@pytest.mark.parametrize("name", ["heterofl", "fedrolex", "fjord", "splitmix", "fluid"])
def test_a_family_that_cannot_be_narrowed_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="family 'torchvision' cannot be made narrower"):
        server(method_class(name), name, model="torchvision_resnet18", shape=(1, 16, 16))


def test_unless_capacity_model_names_another() -> None:
    made = server(method_class("splitmix"), "splitmix", capacity_model="cnn_small")
    assert made.smallest_spec() == models.named_spec("cnn_small", made.task.input_shape, made.task.num_classes)
