"""Memory of a training step, beside what can be counted by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.models.families.headed import headed
from fedscale_ext.models.memory import training_memory
from fedscale_ext.models.supernet.family import dearest_path, make, mixed, path_of
from tests.models.architectures import FAMILIES

SPACE = {
    "form": "cnn",
    "stem": (8, 2),
    "blocks": (1,),
    "operators": ("conv1", "identity"),
    "reductions": [("pool", 16, 2)],
}
SPEC = make((3, 16, 16), 10, **SPACE)
FLOAT = 4


def test_activations_are_what_backward_passes_read() -> None:
    memory = training_memory(path_of(SPEC, ("identity",)), 2)
    stem = (
        2 * 3 * 16 * 16 + 2 * (2 * 8 * 8 * 8) + 2 * 8
    )  # input; inputs of BatchNorm and, as its output, ReLU; statistics
    pooled = 2 * 8 * 4 * 4  # what the 1x1 convolution reads
    reduced = 2 * (2 * 16 * 4 * 4) + 2 * 16
    classifier = 2 * 16  # means over positions
    expected = FLOAT * (stem + pooled + reduced + classifier)
    assert memory.activations == pytest.approx(expected, rel=0.02)
    parameters = models.cost(path_of(SPEC, ("identity",))).parameters
    assert memory.gradients == memory.optimizer == FLOAT * parameters
    assert memory.state == models.cost(path_of(SPEC, ("identity",))).bytes


def test_activations_grow_with_the_batch_alone() -> None:
    path = path_of(SPEC, ("conv1",))
    one, two, four = (training_memory(path, batch) for batch in (1, 2, 4))
    assert two.activations - one.activations == (four.activations - two.activations) / 2
    assert one[:3] == four[:3] and training_memory(path, 1, moments=2).optimizer == 2 * one.optimizer
    assert one.megabytes()["peak_mb"] == pytest.approx(sum(one) / 1e6)


def test_a_path_of_a_supernet_has_the_supernets_state_and_its_own_gradients() -> None:
    whole, alone = training_memory(SPEC, 4, ("identity",)), training_memory(path_of(SPEC, ("identity",)), 4)
    assert whole.activations == alone.activations and whole.gradients == alone.gradients
    assert whole.state == models.cost(SPEC).bytes > alone.state
    with pytest.raises(ValueError, match="say which"):
        training_memory(SPEC, 4)


def test_a_mixture_of_all_operators_takes_more_than_any_path() -> None:
    spec = models.named_spec("cnn_tiny", (3, 32, 32), 10)
    every, one = training_memory(mixed(spec, "alphas"), 8), training_memory(path_of(spec, dearest_path(spec)), 8)
    assert every.activations > 2 * one.activations


@pytest.mark.parametrize("family", sorted(FAMILIES))
@settings(max_examples=3)
@given(data=st.data())
def test_a_step_of_any_family_is_measured(family: str, data: st.DataObject) -> None:
    spec = data.draw(FAMILIES[family])
    memory = training_memory(spec, 2)
    whole = models.cost(spec)
    assert memory.state == whole.bytes and 0 < memory.gradients <= memory.optimizer == FLOAT * whole.parameters
    assert memory.activations > 0


@pytest.mark.parametrize("name", ["torchvision_resnet18", "timm:vit_tiny_patch16_224(patch_size=8, depth=2)"])
@pytest.mark.parametrize("with_head", [False, True])
def test_a_step_of_foreign_networks_is_measured(name: str, with_head: bool) -> None:
    spec = models.named_spec(name, (3, 32, 32), 7)
    assert training_memory(headed(spec, 5) if with_head else spec, 2).activations > 0


def test_a_step_is_measured_while_the_caller_looks_for_nan() -> None:
    with torch.autograd.set_detect_anomaly(True):
        memory = training_memory(models.named_spec("cnn_small", (1, 28, 28), 7), 2)
        assert torch.is_anomaly_enabled()
    assert memory == training_memory(models.named_spec("cnn_small", (1, 28, 28), 7), 2)


def test_a_step_on_texts_is_measured() -> None:
    spec = models.named_spec("rnn", (1, 1, 4), 7)
    assert training_memory(path_of(spec, ("lstm",) * len(spec["ops"])), 2).activations > 0
