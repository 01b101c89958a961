"""Pairs of networks: both outputs in training, the own one in evaluation, and the same side by side as one by one."""

import numpy as np
import pytest
import torch

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.families.paired import PROJECTION, paired, parts
from fedscale_ext.models.final_layer import final_layer, input_of
from fedscale_ext.models.hidden import with_input
from models.side_by_side import assert_side_by_side_equals_one_by_one

SHAPE, CLASSES = (1, 18, 18), 5
PAIRS = [("nasbench201_base", "lenet_6k"), ("single_exit_mlp", "cnn_small"), ("cnn_small", "single_exit_cnn3")]


def spec(own: str, shared: str) -> ModelSpec:
    return paired(*(models.named_spec(name, SHAPE, CLASSES) for name in (own, shared)))


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_a_pair_has_the_tensors_and_the_cost_of_both(names: tuple[str, str]) -> None:
    pair = spec(*names)
    assert ModelSpec.from_json(pair.to_json()) == pair
    own, shared = parts(pair)
    states = [models.initial_state(each, 1) for each in (own, shared)]
    state = models.initial_state(pair, 1)
    assert state.keys() == {f"own.{n}" for n in states[0]} | {f"shared.{n}" for n in states[1]}
    assert state.keys() == models.layout(pair).keys()
    costs = [models.cost(each) for each in (own, shared)]
    assert models.cost(pair).bytes == sum(cost.bytes for cost in costs)
    assert models.cost(pair).forward_macs == sum(cost.forward_macs for cost in costs)


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_training_gives_both_and_evaluation_the_own_one(names: tuple[str, str]) -> None:
    module = models.build(spec(*names))
    x = torch.randn(3, *SHAPE)
    with torch.no_grad():
        both = module(x)
        shared, own = (each(x).reshape(3, CLASSES) for each in (module.shared, module.own))
    torch.testing.assert_close(both, torch.stack([shared, own], 1))
    module.eval()
    assert torch.equal(module(x), module.own(x)) and module(x).shape == (3, CLASSES)


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_side_by_side_equals_one_by_one(names: tuple[str, str]) -> None:
    assert_side_by_side_equals_one_by_one(spec(*names))


HIDDEN = [("nasbench201_base", "lenet_6k"), ("single_exit_mlp", "cnn_small")]


def hidden_spec(own: str, shared: str) -> ModelSpec:
    return paired(*(models.named_spec(name, SHAPE, CLASSES) for name in (own, shared)), hidden=True)


@pytest.mark.parametrize("names", HIDDEN, ids="+".join)
def test_a_pair_that_compares_features_gives_the_error_of_the_projected_ones(names: tuple[str, str]) -> None:
    pair, plain = hidden_spec(*names), spec(*names)
    state = models.initial_state(pair, 1)
    assert state.keys() - models.initial_state(plain, 1).keys() == {"projection.weight"}
    assert models.layout(pair).keys() == state.keys()
    module, reference = models.build(pair).double(), models.build(plain).double()
    reference.load_state_dict({name: value for name, value in module.state_dict().items() if name != PROJECTION})
    x = torch.randn(3, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    own, shared = (final_layer(part).name for part in parts(pair))
    with torch.no_grad():
        with (
            input_of(reference.own.get_submodule(own)) as of_own,
            input_of(reference.shared.get_submodule(shared)) as of_shared,
        ):
            expected = reference(x)
        rows = module(x)
    features, others = of_own.deepest(2).numpy(), of_shared.deepest(2).numpy()
    error = ((features - others @ module.projection.weight.detach().numpy().T) ** 2).mean(1)
    torch.testing.assert_close(rows[:, :2], expected)
    np.testing.assert_allclose(rows[:, 2].numpy(), np.repeat(error[:, None], CLASSES, 1), rtol=1e-9)
    module.eval(), reference.eval()
    assert torch.equal(module(x), reference(x))


@pytest.mark.parametrize("names", HIDDEN, ids="+".join)
def test_pairs_that_compare_features_are_the_same_side_by_side(names: tuple[str, str]) -> None:
    assert_side_by_side_equals_one_by_one(hidden_spec(*names))


def test_a_network_of_several_exits_compares_no_features() -> None:
    with pytest.raises(UserError, match="several exits, and this method compares features of one"):
        models.build(hidden_spec("multi_exit_cnn3", "cnn_small"))


def test_a_last_layer_that_is_not_torchs_own_is_refused() -> None:
    class Special(torch.nn.Linear):
        """Computes in a way of its own."""

    with pytest.raises(UserError, match="the last layer 0 of a model is a Special"):
        with_input(torch.nn.Sequential(Special(2, 3)), "0")
