"""Pairs of networks: both outputs in training, the own one in evaluation, and the same side by side as one by one."""

import numpy as np
import pytest
import torch

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.families.headed import headed
from fedscale_ext.models.families.network_pair import FEATURES, FUSED, PROJECTION, PROJECTIONS, member_specs, pair_spec
from fedscale_ext.models.layers.feature_output import with_input
from fedscale_ext.models.layers.final_layer import deepest, ends_in_final_layer, final_layer, input_of
from models.side_by_side import assert_side_by_side_equals_one_by_one

SHAPE, CLASSES = (1, 18, 18), 5
PAIRS = [("nasbench201_base", "lenet_6k"), ("single_exit_mlp", "cnn_small"), ("cnn_small", "single_exit_cnn3")]


def spec(personal: str, shared: str) -> ModelSpec:
    return pair_spec(*(models.named_spec(name, SHAPE, CLASSES) for name in (personal, shared)))


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_a_pair_has_the_tensors_and_the_cost_of_both(names: tuple[str, str]) -> None:
    pair = spec(*names)
    assert ModelSpec.from_json(pair.to_json()) == pair
    personal, shared = member_specs(pair)
    states = [models.initial_state(each, 1) for each in (personal, shared)]
    state = models.initial_state(pair, 1)
    assert state.keys() == {f"own.{n}" for n in states[0]} | {f"shared.{n}" for n in states[1]}
    assert state.keys() == models.layout(pair).keys()
    costs = [models.cost(each) for each in (personal, shared)]
    assert models.cost(pair).bytes == sum(cost.bytes for cost in costs)
    assert models.cost(pair).forward_macs == sum(cost.forward_macs for cost in costs)


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_training_gives_both_and_evaluation_the_own_one(names: tuple[str, str]) -> None:
    module = models.build(spec(*names))
    x = torch.randn(3, *SHAPE)
    with torch.no_grad():
        both = module(x)
        shared, personal = (each(x).reshape(3, CLASSES) for each in (module.shared, module.own))
    torch.testing.assert_close(both, torch.stack([shared, personal], 1))
    module.eval()
    assert torch.equal(module(x), module.own(x)) and module(x).shape == (3, CLASSES)


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_side_by_side_equals_one_by_one(names: tuple[str, str]) -> None:
    assert_side_by_side_equals_one_by_one(spec(*names))


HIDDEN = [("nasbench201_base", "lenet_6k"), ("single_exit_mlp", "cnn_small")]


def hidden_spec(personal: str, shared: str) -> ModelSpec:
    return pair_spec(*(models.named_spec(name, SHAPE, CLASSES) for name in (personal, shared)), joined=FEATURES)


@pytest.mark.parametrize("names", HIDDEN, ids="+".join)
def test_a_pair_that_compares_features_gives_the_error_of_the_projected_ones(names: tuple[str, str]) -> None:
    pair, plain = hidden_spec(*names), spec(*names)
    state = models.initial_state(pair, 1)
    assert state.keys() - models.initial_state(plain, 1).keys() == {"projection.weight"}
    assert models.layout(pair).keys() == state.keys()
    module, reference = models.build(pair).double(), models.build(plain).double()
    reference.load_state_dict({name: value for name, value in module.state_dict().items() if name != PROJECTION})
    x = torch.randn(3, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    personal, shared = (final_layer(part).name for part in member_specs(pair))
    with torch.no_grad():
        with (
            input_of(reference.own.get_submodule(personal)) as of_personal,
            input_of(reference.shared.get_submodule(shared)) as of_shared,
        ):
            expected = reference(x)
        rows = module(x)
    features, others = deepest(of_personal.features, 2).numpy(), deepest(of_shared.features, 2).numpy()
    error = ((features - others @ module.projection.weight.detach().numpy().T) ** 2).mean(1)
    torch.testing.assert_close(rows[:, :2], expected)
    np.testing.assert_allclose(rows[:, 2].numpy(), np.repeat(error[:, None], CLASSES, 1), rtol=1e-9)
    module.eval(), reference.eval()
    assert torch.equal(module(x), reference(x))


@pytest.mark.parametrize("names", HIDDEN, ids="+".join)
def test_pairs_that_compare_features_are_the_same_side_by_side(names: tuple[str, str]) -> None:
    assert_side_by_side_equals_one_by_one(hidden_spec(*names))


def test_a_network_of_several_exits_compares_no_features() -> None:
    with pytest.raises(UserError, match="several exits, and this method takes features of one"):
        models.build(hidden_spec("multi_exit_cnn3", "cnn_small"))


def test_a_last_layer_that_is_not_torchs_own_is_refused() -> None:
    class Special(torch.nn.Linear):
        """Computes in a way of its own."""

    with pytest.raises(UserError, match="the last layer 0 of a model is a Special"):
        with_input(torch.nn.Sequential(Special(2, 3)), "0")


@pytest.mark.parametrize("joined", [FEATURES, FUSED])
def test_a_network_that_changes_its_last_layers_outputs_is_refused(joined: str) -> None:
    plain, changed = (
        models.named_spec(f"tests.models.channels.networks:{name}", SHAPE, CLASSES)
        for name in ("Net", "LogProbabilities")
    )
    models.build(pair_spec(plain, plain, joined=joined))
    for pair in ((plain, changed), (changed, plain)):
        with pytest.raises(UserError, match="changes what its last linear layer head gives"):
            models.build(pair_spec(*pair, joined=joined))


def test_a_network_without_finite_outputs_is_not_refused() -> None:
    spec = models.named_spec("tests.models.channels.networks:Logarithms", SHAPE, CLASSES)
    assert ends_in_final_layer(spec)


NESTED = [("nasbench201_base", "lenet_6k"), ("single_exit_mlp", "cnn_small")]


def fused_spec(personal: str, shared: str) -> ModelSpec:
    return pair_spec(models.named_spec(personal, SHAPE, CLASSES), headed(models.named_spec(shared, SHAPE, CLASSES), 4),
                  joined=FUSED)  # fmt: skip


@pytest.mark.parametrize("names", NESTED, ids="+".join)
def test_fused_heads_read_a_map_of_both_networks_features(names: tuple[str, str]) -> None:
    pair = fused_spec(*names)
    personal, shared = member_specs(pair)
    state = models.initial_state(pair, 1)
    assert models.layout(pair).keys() == state.keys()
    assert {name for name in state if not name.startswith(("own.", "shared."))} == set(PROJECTIONS)
    module = models.build(pair).double()
    module.load_state_dict(
        {name: value.double() if value.is_floating_point() else value for name, value in state.items()}
    )
    x = torch.randn(3, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    layers = final_layer(personal), final_layer(shared)
    alone, features = [models.build(each).double() for each in (personal, shared)], []
    for network, begin, layer in zip(alone, ("own.", "shared."), layers, strict=True):
        every = module.state_dict().items()
        network.load_state_dict({name.removeprefix(begin): value for name, value in every if name.startswith(begin)})
        with torch.no_grad(), input_of(network.train().get_submodule(layer.name)) as last:
            network(x)
        features.append(deepest(last.features, 2).numpy())
    held = {name: value.numpy() for name, value in module.state_dict().items()}
    # one map of both networks' features side by side
    map_of_both = np.concatenate([held["projection.own.weight"], held["projection.shared.weight"]], 1)
    fused = np.concatenate(features, 1) @ map_of_both.T + held["projection.own.bias"]
    head = f"own.{layers[0].name}"
    mine = fused @ held[f"{head}.weight"].T + held[f"{head}.bias"]
    theirs = fused[:, :4] @ held["shared.head.weight"].T + held["shared.head.bias"]
    np.testing.assert_allclose(module(x).detach().numpy(), np.stack([theirs, mine], 1), rtol=1e-9, atol=1e-12)
    module.eval()
    assert module(x).shape == (3, CLASSES)
    width = layers[0].width
    heads = CLASSES * (width + 4)  # each last layer runs twice
    macs = sum(models.cost(each).forward_macs for each in (personal, shared)) + width * (width + 4) + heads
    assert models.cost(pair).forward_macs == macs


def test_fused_evaluation_is_the_own_head_of_training() -> None:
    module = models.build(fused_spec("cnn_small", "lenet_6k"))  # without BatchNorm
    x = torch.randn(3, *SHAPE, generator=torch.Generator().manual_seed(1))
    both = module.train()(x)
    torch.testing.assert_close(module.eval()(x), both[:, 1])


@pytest.mark.parametrize("names", NESTED, ids="+".join)
def test_fused_pairs_are_the_same_side_by_side(names: tuple[str, str]) -> None:
    assert_side_by_side_equals_one_by_one(fused_spec(*names))


def test_a_shared_network_with_more_features_than_the_own_one_is_refused() -> None:
    narrow, wide = (headed(models.named_spec("cnn_small", SHAPE, CLASSES), width) for width in (4, 7))
    pair = pair_spec(narrow, wide, joined=FUSED)
    with pytest.raises(UserError, match="the shared model has 7 features and a client's own one 4"):
        models.build(pair)
