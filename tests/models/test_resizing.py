"""Submodels of every family at any width are networks of the resized spec."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Axis, ModelSpec
from fedscale_ext.models import registry
from fedscale_ext.submodels import coverage, extract, insert

from .architectures import CELLS, FAMILIES, SHAPE

calm = settings(deadline=None, derandomize=True, max_examples=15)


def index_maps(spec, seed):
    """Some channels, in any order, of some of the groups."""
    generator = torch.Generator().manual_seed(seed)

    def upto(length):
        return int(torch.randint(length, (), generator=generator)) + 1

    return {
        group: torch.randperm(length, generator=generator)[: upto(length)]
        for group, length in models.group_widths(spec).items()
        if group not in ("input", "classes") and upto(4) > 1
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_an_extracted_submodel_is_a_network_of_the_resized_spec(family):
    @given(spec=FAMILIES[family], seed=st.integers(0, 10_000))
    @calm
    def check(spec, seed):
        state, layout, index_map = models.initial_state(spec, seed), models.layout(spec), index_maps(spec, seed)
        small = models.resized(spec, {group: len(index) for group, index in index_map.items()})
        part = extract(state, layout, index_map)
        module = models.build(small)
        module.load_state_dict(part, strict=True)
        assert module.eval()(torch.randn(2, *SHAPE)).shape == (2, spec["num_classes"])
        assert models.layout(small) == layout
        assert models.cost(small).parameters == sum(part[name].numel() for name in models.parameter_names(spec))
        assert models.group_widths(small) == {
            **models.group_widths(spec),
            **{group: len(index) for group, index in index_map.items()},
        }
        covered = coverage(layout, index_map)
        back = insert(state, part, covered)
        assert all(torch.equal(back[name], state[name]) for name in state)
        again = extract(insert(models.initial_state(spec, seed + 1), part, covered), layout, index_map)
        assert all(torch.equal(again[name], part[name]) for name in part)

    check()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix_of_full_length_is_the_identity(family):
    @given(spec=FAMILIES[family])
    @calm
    def check(spec):
        full = models.group_widths(spec)
        assert models.resized(spec, full) is spec
        resize = models.family(spec).resized
        assert resize(spec, full) == resize(spec, {}) == spec
        state = models.initial_state(spec, 1)
        whole = extract(state, models.layout(spec), {group: torch.arange(length) for group, length in full.items()})
        assert all(torch.equal(whole[name], state[name]) for name in state)

    check()


def test_every_family_that_can_be_resized_is_tested():
    assert FAMILIES.keys() == {
        name for name, module in registry._families().items() if hasattr(module, "resized")
    } == registry._families().keys() - {"torchvision", "supernet", "headed", "paired"}  # fmt: skip
    assert CELLS.keys() == {name for name, module in registry._families().items() if hasattr(module, "cell_ids")}


def test_what_data_and_task_fix_and_what_is_not_there_is_refused():
    spec = models.named_spec("cnn_small", (1, 12, 12), 5)
    assert models.group_widths(spec) == {"input": 1, "conv1": 16, "conv2": 32, "linear1": 28, "classes": 5}
    for widths in ({"input": 2}, {"classes": 4}, {"conv1": 0}, {"conv9": 3}):
        with pytest.raises(ValueError, match="group"):
            models.resized(spec, widths)


def test_a_family_without_widths_says_so(monkeypatch):
    monkeypatch.delattr("fedscale_ext.models.families.cnn.resized")
    with pytest.raises(UserError, match="'cnn' cannot be made narrower"):
        models.resized(models.named_spec("cnn_small", (1, 12, 12), 5), {"conv1": 3})


def test_lengths_are_channels_not_entries(monkeypatch):
    spec = ModelSpec.make("cnn", input_shape=(1, 8, 8), num_classes=3, widths=(2, 3), kernels=(3, 3), hidden=7)
    assert Axis("conv2", "in", 4) in models.layout(spec)["linear1.weight"]
    assert models.group_widths(spec)["conv2"] == 3
