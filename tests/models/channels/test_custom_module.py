"""Any nn.Module as a model: named, built, costed, cut, trained side by side, refused in one sentence."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models import registry
from fedscale_ext.models.families.headed import headed
from fedscale_ext.models.layers.dropout import Dropout
from fedscale_ext.models.memory import training_memory
from fedscale_ext.models.stacked.network import Mapped, Stacked, stacked
from fedscale_ext.submodels import count_mean, extract, narrowed, window
from fedscale_ext.submodels.extraction import coverage
from tests.models.channels.networks import Net

HERE = "tests.models.channels.networks"


def spec_of(model: str, shape: tuple[int, int, int] = (1, 8, 8), classes: int = 3) -> ModelSpec:
    return models.configured_spec(model, shape, classes)


def test_a_class_gets_the_tasks_numbers_and_its_arguments() -> None:
    spec = spec_of(f"{HERE}:Net(width=5)", (2, 9, 7), 4)
    module = models.build(spec)
    assert isinstance(module, Net) and module(torch.zeros(2, 2, 9, 7)).shape == (2, 4)
    assert module.stem.out_channels == 5 and module.stem.in_channels == 2
    assert ModelSpec.from_json(spec.to_json()) == spec
    macs = 63 * (9 * 2 * 5 + 9 * 5 * 10 + 9 * 10 + 10 * 5) + 20 * 6 + 6 * 4
    assert models.cost(spec).forward_macs == macs


def test_the_family_is_named_for_what_it_holds() -> None:
    assert spec_of(f"{HERE}:Net").family == "custom_module" in registry._families()


def test_both_families_of_torchvision_read_any_number_of_channels() -> None:
    """The family with adapted strides draws weights as torchvision does, the other as the layer does."""
    scales = {"torchvision_resnet18": 2 / (64 * 49), "torchvision:resnet18": 1 / (3 * 5 * 49)}
    for model, variance in scales.items():
        weight = models.initial_state(spec_of(model, (5, 64, 64)), 1)["conv1.weight"]
        assert weight.shape == (64, 5, 7, 7) and weight.std().item() == pytest.approx(variance**0.5, rel=0.05)


def test_equal_seeds_give_equal_states_and_a_narrower_one_has_the_leading_channels() -> None:
    spec = spec_of(f"{HERE}:Net(width=4)")
    whole, again, part = (models.initial_state(each, 7) for each in (spec, spec, narrowed(spec, 0.5)))
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert torch.equal(part["inner.weight"], whole["inner.weight"][:4, :2])
    module = models.build(narrowed(spec, 0.5))
    assert (module.depthwise.groups, module.norm.num_features, module.head.in_features) == (4, 4, 3)


def test_tied_weights_stay_tied_in_a_narrower_network_and_after_a_mean() -> None:
    spec = spec_of(f"{HERE}:Tied")
    part, layout, leading = narrowed(spec, 0.5), models.layout(spec), window(spec, 0.5)
    assert models.group_widths(part) == {"input": 1, "inner": 3, "classes": 3}
    assert registry.parameter_names(part) == registry.parameter_names(spec)
    assert models.cost(part).parameters < models.cost(spec).parameters
    start, module = models.initial_state(spec, 1), models.build(part).train()
    module.load_state_dict(extract(start, layout, leading))
    module(torch.randn(4, 1, 8, 8)).logsumexp(1).sum().backward()
    torch.optim.SGD(module.parameters(), 0.1).step()
    mean = count_mean(start, [(start, None, 1.0), (module.state_dict(), coverage(layout, leading), 1.0)])
    assert not torch.equal(mean["one.weight"], start["one.weight"])
    for one, other in [("one.", "two."), ("norms.0.", "norms.1."), ("again.", "third.")]:
        assert layout[one + "weight"] == layout[other + "weight"]
        assert torch.equal(mean[one + "weight"], mean[other + "weight"])


@pytest.mark.parametrize(("model", "form"), [(f"{HERE}:Net", Stacked), ("torchvision:shufflenet_v2_x0_5", Mapped)])
def test_clients_train_side_by_side(model: str, form: type) -> None:
    shape = (1, 8, 8) if form is Stacked else (3, 33, 33)
    assert isinstance(stacked(models.build(spec_of(model, shape)), shape), form)


def test_dropout_draws_for_each_client() -> None:
    module = models.build(spec_of(f"{HERE}:Net"))
    assert isinstance(module.drop, Dropout) and module.drop.p == 0.2
    assert not any(type(part) is nn.Dropout for part in module.modules())


def test_a_body_may_have_another_head() -> None:
    spec = headed(spec_of(f"{HERE}:Net"), 5)
    assert models.build(spec)(torch.zeros(2, 1, 8, 8)).shape == (2, 3)
    assert models.group_widths(spec)["representation"] == 5


@pytest.mark.parametrize(
    "model",
    ["torchvision:regnet_y_400mf", "timm:vit_tiny_patch16_224(patch_size=8, depth=2)", f"{HERE}:Reading"],
)
def test_networks_that_read_values_or_sizes_are_built(model: str) -> None:
    spec = spec_of(model, (1, 32, 32), 6)
    assert models.cost(spec).forward_macs > 0 and models.build(spec)(torch.zeros(2, 1, 32, 32)).shape == (2, 6)
    assert registry.skeleton(spec).state_dict().keys() == models.build(spec).state_dict().keys()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (f"{HERE}:Nett", f"{HERE} has no Nett"),
        ("os:system(command='true')", "is no nn.Module class: system"),
        ("torch.nn:functional", "is no nn.Module class"),
        ("no_such_package.nets:Net", "cannot be imported: No module named 'no_such_package'"),
        (f"{HERE}:Net(width=open('x'))", "arguments are name=value, of numbers, strings and lists"),
        (f"{HERE}:Net(4)", "arguments are name=value"),
        (f"{HERE}:Net(**{{}})", "arguments are name=value"),
        (f"{HERE}:Net(width=4", "write a custom model as package.module:Class"),
        (":Net", "write a custom model as package.module:Class"),
        (f"{HERE}:Net(wide=4)", "cannot be built: TypeError"),
        (f"{HERE}:Broken", "cannot be built: KeyError"),
        (f"{HERE}:TenClasses", "gives an output of shape (2, 10) for 2 samples of 3 classes"),
        ("torch.nn:Identity", "gives an output of shape (2, 1, 8, 8)"),
        ("torchvision:resnet19", "torchvision has no network 'resnet19'"),
        ("timm:no_such", "timm has no network 'no_such'"),
        ("torchvision:alexnet", "does not run on samples of (1, 8, 8)"),
    ],
)
def test_what_cannot_be_a_model_is_told_in_one_sentence(model: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        spec_of(model)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_a_forward_pass_that_names_its_channels_cannot_be_narrowed() -> None:
    spec = spec_of(f"{HERE}:Fixed")
    with pytest.raises(UserError, match=r"cannot be made narrower, its forward pass fails .* as x.flatten\(1\) does"):
        narrowed(spec, 0.5)


def test_timm_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(UserError, match=r"needs timm: pip install 'fedscale_ext\[timm\]'"):
        spec_of("timm:resnet18")


def test_lazy_layers_are_refused() -> None:
    with pytest.raises(UserError, match=f"model {HERE}:Lazy has lazy layers; give each layer its number of inputs"):
        spec_of(f"{HERE}:Lazy")


def test_a_network_without_trainable_parameters_is_refused_for_that() -> None:
    with pytest.raises(UserError, match="Frozen has no trainable parameter; leave requires_grad of some true"):
        models.cost(spec_of(f"{HERE}:Frozen"))


def test_a_forward_pass_may_make_tensors() -> None:
    spec = spec_of(f"{HERE}:Noisy")
    assert models.cost(spec).forward_macs == 64 * 3
    assert training_memory(spec, 2).activations > 0


def test_a_module_of_another_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    for folder in ("one", "two"):
        (tmp_path / folder / "pack").mkdir(parents=True)
        for name in ("pack/__init__.py", "pack/moved_net.py", "moved_net.py"):
            (tmp_path / folder / name).write_text("from tests.models.channels.networks import Net\n")
    monkeypatch.chdir(tmp_path / "one")
    for model in ("moved_net:Net", "pack.moved_net:Net"):
        spec_of(model)
    monkeypatch.chdir(tmp_path / "two")
    for name in ("moved_net", "pack.moved_net"):
        loaded, new = (tmp_path / folder / f"{name.replace('.', '/')}.py" for folder in ("one", "two"))
        with pytest.raises(
            UserError, match=f"has loaded {name} from {loaded}, and a new one would load {new}; restart"
        ):
            spec_of(f"{name}:Net")
    monkeypatch.chdir(tmp_path / "one")
    spec_of("moved_net:Net")
    for name in ("moved_net", "pack", "pack.moved_net"):
        del sys.modules[name]
