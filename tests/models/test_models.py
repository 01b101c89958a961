"""Families of models: specs, networks, layouts, initial states."""

import json
import types

import pytest
import torch

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models import registry
from fedscale_ext.models.families.nasbench201 import BASE_GENOTYPE, Cell, make, widened

CNNS = ("cnn_leaf", "cnn_small")
NAMES = ("nasbench201_base", "resnet18_speech", "resnet18_openimage", "mobilenetv3_small", "vit_small", *CNNS)
SHAPES = ((1, 28, 28), (3, 32, 32), (1, 49, 40), (3, 64, 64))


def sizes(spec):
    """Length of every group, checked to be the same on all its axes."""
    lengths: dict[str, int] = {}
    shapes = {name: tensor.shape for name, tensor in registry.skeleton(spec).state_dict().items()}
    layout = models.layout(spec)
    assert layout.keys() == shapes.keys()
    for name, axes in layout.items():
        assert len(axes) == len(shapes[name]), name
        for axis, length in zip(axes, shapes[name], strict=True):
            if axis is not None:
                assert lengths.setdefault(axis.group, length // axis.repeat) * axis.repeat == length, name
    return lengths


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_networks_of_all_input_shapes_run_and_are_laid_out(name, shape):
    spec = models.named_spec(name, shape, 35)
    assert models.build(spec)(torch.randn(2, *shape)).shape == (2, 35)
    groups = sizes(spec)
    assert groups["input"] == shape[0]
    assert groups["classes"] == 35


@pytest.mark.parametrize("name", NAMES)
def test_specs_survive_json_and_hash(name):
    spec = models.named_spec(name, (1, 28, 28), 62)
    again = ModelSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec
    assert hash(again) == hash(spec)
    models.build(again)


def test_base_has_the_published_size():
    cost = models.cost(models.named_spec("nasbench201_base", (1, 28, 28), 62))
    assert 10_000 < cost.parameters < 12_000
    assert 2.3e6 < cost.forward_macs < 2.8e6


def test_cnns_have_their_known_sizes():
    count = {name: models.cost(models.named_spec(name, (1, 28, 28), 62)).parameters for name in CNNS}
    assert count == {"cnn_leaf": 6_603_710, "cnn_small": 50_786}


def test_layout_puts_coupled_channels_into_one_group_and_frees_widened_ones():
    spec = make(
        (1, 8, 8),
        3,
        4,
        [6],
        [[Cell("c0", BASE_GENOTYPE, 4), Cell("c1", BASE_GENOTYPE, 4)], [Cell("c2", BASE_GENOTYPE, 6)]],
    )
    assert sizes(spec) == {"input": 1, "stem": 4, "reductions.0": 6, "classes": 3}
    assert sizes(widened(spec, "c0", 9)) == {
        "input": 1, "stem": 4, "cells.c0": 9, "cells.c1": 4, "reductions.0": 6, "classes": 3,
    }  # fmt: skip
    assert "cells.c1.e03.adapter.weight" in models.layout(widened(spec, "c0", 9))
    assert "cells.c2.e03.adapter.weight" not in models.layout(widened(spec, "c0", 9))


def test_networks_compute_the_cell_as_defined():
    arch = "|nor_conv_1x1~0|+|avg_pool_3x3~0|skip_connect~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"
    spec = make((1, 5, 5), 3, 2, [], [[Cell("a", arch, 2)]])
    cell = models.build(spec).cells["a"].eval()
    x = torch.randn(1, 2, 5, 5)

    def conv(edge, value):
        return edge.bn(edge.conv(torch.relu(value)))

    one = conv(cell.e01, x)
    two = torch.nn.functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False) + one
    torch.testing.assert_close(cell(x), x + conv(cell.e23, two))


def test_a_cell_without_operations_gives_zeros():
    nothing = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"
    module = models.build(make((1, 4, 4), 3, 2, [], [[Cell("a", nothing, 5, True)]]))
    assert torch.equal(module.cells["a"](torch.randn(2, 2, 4, 4)), torch.zeros(2, 5, 4, 4))
    assert module(torch.randn(2, 1, 4, 4)).shape == (2, 3)


@pytest.mark.parametrize(
    ("reductions", "stages", "message"),
    [
        ([], [[Cell("a", BASE_GENOTYPE, 5)]], "adapter flag"),
        ([8], [[Cell("a", BASE_GENOTYPE, 4)]], "give one less"),
        ([], [[Cell("a", BASE_GENOTYPE, 4), Cell("a", BASE_GENOTYPE, 4)]], "used twice"),
        ([], [[Cell("a.b", BASE_GENOTYPE, 4)]], "plain name"),
        ([], [[Cell("a", "nonsense", 4)]], "genotype"),
    ],
)
def test_specs_that_do_not_fit_together_are_refused(reductions, stages, message):
    with pytest.raises(UserError, match=message):
        make((1, 8, 8), 3, 4, reductions, stages)


@pytest.mark.parametrize("name", NAMES)
def test_initial_states_depend_on_the_seed_only(name):
    spec = models.named_spec(name, (1, 20, 20), 5)
    torch.manual_seed(1)
    first = models.initial_state(spec, 7)
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    second, other = models.initial_state(spec, 7), models.initial_state(spec, 8)
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
    drawn = [models.initial_state(spec, torch.Generator().manual_seed(7)) for _ in range(2)]
    assert all(torch.equal(drawn[0][key], drawn[1][key]) for key in first)
    models.build(spec).load_state_dict(first)


def test_parameter_names_leave_buffers_out():
    names = models.parameter_names(models.named_spec("nasbench201_base", (1, 12, 12), 5))
    assert "stem.bn.weight" in names
    assert not any("running" in name or "num_batches" in name for name in names)


def test_unknown_names_get_a_suggestion():
    with pytest.raises(UserError, match="did you mean 'cnn_small'"):
        models.named_spec("cnn_smal", (1, 28, 28), 62)
    number = sum(len(family.NAMED) for family in registry._families().values())
    with pytest.raises(UserError) as error:
        models.named_spec("zzz", (1, 28, 28), 62)
    said = str(error.value)
    assert said.startswith("there is no model 'zzz'; there are cifar10_extra_range, ") and said.endswith(
        f" and {number - 12} more"
    )
    assert len(said) < 300
    with pytest.raises(UserError, match="did you mean 'nasbench201'"):
        models.family("nasbench20")
    with pytest.raises(UserError, match="input shape"):
        models.named_spec("cnn_leaf", (1, 28), 62)
    with pytest.raises(UserError, match="too small"):
        models.cost(models.named_spec("cnn_leaf", (1, 3, 28), 62))


def test_other_packages_add_families_by_entry_point(monkeypatch):
    class Flat(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x.flatten(1))

    theirs = types.SimpleNamespace(
        NAMED={"flat": lambda shape, classes: ModelSpec.make("theirs", input_shape=shape, num_classes=classes)},
        build=lambda spec: Flat(torch.Size(spec["input_shape"]).numel(), spec["num_classes"]),
        layout=lambda spec: {"weight": (None, None), "bias": (None,)},
    )
    point = types.SimpleNamespace(name="theirs", load=lambda: theirs)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == "fedscale_ext.models" else [])
    registry._families.cache_clear()
    try:
        spec = models.named_spec("flat", (2, 3, 4), 5)
        assert models.cost(spec).forward_macs == 2 * 3 * 4 * 5
        assert models.initial_state(spec, 1)["weight"].shape == (5, 24)
    finally:
        registry._families.cache_clear()
