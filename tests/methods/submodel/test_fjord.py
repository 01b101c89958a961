"""FjORD: ordered dropout, self-distillation, and its mean."""

from typing import Any

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, bench_of, client_settings
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedscale_ext import models
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.submodel.fjord import FjordAggregator, FjordClient, drawn_widths, narrow
from fedscale_ext.submodels import count_mean, coverage, extract, insert, narrowed, widths_at, window
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.samples import ClientSamples
from methods.harness import samples, server

SHAPE = (1, 8, 8)
SCALED = "tests.models.channels.networks:Scaled"  # with a buffer that is no part of its state
SPECS = {name: models.named_spec(name, SHAPE, 5) for name in ("cnn_small", "nasbench201_base", SCALED)}
P = (1.0, 0.8, 0.6, 0.4, 0.2)


def conf(spec: models.ModelSpec, **changes: Any) -> ClientConfig:
    values = {
        "local_steps": 1, "batch_size": 6, "learning_rate": 0.1, "client_momentum": 0.0, "client_weight_decay": 0.0,
        "distil": False, "widths": [widths_at(spec, rate) for rate in P],
    }  # fmt: skip
    return client_settings(**{**values, **changes})


def network(spec: models.ModelSpec) -> torch.nn.Module:
    module = models.build(spec)
    module.load_state_dict(models.initial_state(spec, 1))
    return module.double()


def round_that_draws(choice: int) -> int:
    return next(number for number in range(1, 99) if drawn_widths(1, number, 3, len(P), 1) == [choice])


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("choice", range(5))
def test_a_step_at_p_is_a_step_of_the_network_of_the_leading_channels(name: str, choice: int) -> None:
    spec = SPECS[name]
    settings_ = conf(spec, round=round_that_draws(choice))
    module = network(spec)
    start = {key: value.clone() for key, value in module.state_dict().items()}
    trained = FjordClient(settings_, bench_of(spec)).train(samples(6), module, settings_)
    small, layout, channels = network(narrowed(spec, P[choice])), models.layout(spec), window(spec, P[choice])
    small.load_state_dict(extract(start, layout, channels))
    alone = MultiModelClient(settings_, NO_BENCH).train(samples(6), small, settings_)
    expected = insert(start, alone["update_weight"], coverage(layout, channels))
    for key in models.parameter_names(spec):
        torch.testing.assert_close(trained["update_weight"][key], expected[key], atol=1e-12, rtol=1e-12)
        assert not torch.equal(trained["update_weight"][key], start[key])
    assert trained["moving_loss"] == pytest.approx(alone["moving_loss"], abs=1e-12)
    for key in start.keys() - set(models.parameter_names(spec)):  # running statistics are those of p_max
        assert torch.equal(trained["update_weight"][key], start[key]) == (choice > 0), key


@pytest.mark.parametrize("name", [*SPECS, "single_exit_cnn3"])
@pytest.mark.parametrize("choice", [0, 2])
def test_the_widest_teaches_the_drawn_one(name: str, choice: int) -> None:
    spec, data = models.named_spec(name, SHAPE, 5), samples(6)
    settings_ = conf(spec, round=round_that_draws(choice), distil=True)
    module = network(spec)
    start = {key: value.clone() for key, value in module.state_dict().items()}
    # the order of a batch plays no part in a mean
    wide = network(spec)
    wide.load_state_dict(start)
    output = wide(data.x).flatten(0, -2)  # of a network's only exit, too
    loss = functional.cross_entropy(output, data.y)
    if choice:
        part = narrow(wide, spec, tuple(sorted(widths_at(spec, P[choice]).items())))
        soft = output.detach().softmax(1)
        loss = loss - (soft * part(data.x).flatten(0, -2).log_softmax(1)).sum(1).mean()
    names = [key for key, _ in wide.named_parameters()]
    gradients = dict(zip(names, torch.autograd.grad(loss, list(wide.parameters())), strict=True))
    trained = FjordClient(settings_, bench_of(spec)).train(data, module, settings_)
    for key, gradient in gradients.items():
        torch.testing.assert_close(trained["update_weight"][key], start[key] - 0.1 * gradient, atol=1e-12, rtol=1e-9)
    assert trained["moving_loss"] == pytest.approx(loss.item(), abs=1e-9)


def test_unused_channels_still_decay_and_keep_their_momentum() -> None:
    """As in the public code: one optimiser for all parameters, with zeros where a width does not reach."""
    spec = SPECS["cnn_small"]
    settings_ = conf(spec, round=round_that_draws(4), client_weight_decay=0.5)
    module = network(spec)
    before = module.conv1.weight.detach().clone()
    FjordClient(settings_, bench_of(spec)).train(samples(6), module, settings_)
    last = slice(widths_at(spec, 0.2)["conv1"], None)
    torch.testing.assert_close(module.conv1.weight[last], before[last] * (1 - 0.1 * 0.5))


def test_absent_classes_are_masked_for_every_width() -> None:
    spec = SPECS["cnn_small"]
    data = ClientSamples(samples(6).x, torch.tensor([1, 1, 2, 2, 1, 2]))
    for choice, distil in ((0, False), (3, False), (3, True)):
        settings_ = conf(spec, round=round_that_draws(choice), own_classes=True, distil=distil)
        module = network(spec)
        before = module.linear2.bias.detach().clone()
        FjordClient(settings_, bench_of(spec)).train(data, module, settings_)
        assert (module.linear2.bias != before).tolist() == [False, True, True, False, False]


def test_draws_are_uniform_below_p_max_and_the_clients_own() -> None:
    drawn = np.array([drawn_widths(1, 1, client, 4, 50) for client in range(40)])
    assert np.bincount(drawn.ravel(), minlength=4).min() > 420 and drawn.max() == 3
    assert (drawn[0] != drawn[1]).any() and drawn_widths(1, 1, 5, 4, 50) != drawn_widths(1, 2, 5, 4, 50)


@given(seed=st.integers(0, 10_000), levels=st.lists(st.integers(0, 4), min_size=1, max_size=6))
@settings(deadline=None, derandomize=True, max_examples=20)
def test_overwriting_blocks_with_falling_p_is_the_count_mean(seed: int, levels: list[int]) -> None:
    """The public code's server, over clients of p_max ``P[level]`` with different numbers of examples."""
    spec = SPECS["nasbench201_base"]
    layout, start = models.layout(spec), {k: v.double() for k, v in models.initial_state(spec, seed).items()}
    clients = []
    for index, level in enumerate(levels):
        state = {k: v.double() for k, v in models.initial_state(spec, seed + 1 + index).items()}
        clients.append((level, extract(state, layout, window(spec, P[level])), 10.0 * (index + 1)))
    overwritten = start
    for level, p in enumerate(P):  # falling
        holders = [(state, weight) for client_level, state, weight in clients if client_level <= level]
        if not holders:
            continue
        narrow = widths_at(spec, p)
        block = {}
        for name in start:
            cut = tuple(
                slice(narrow[axis.group] * axis.repeat) if axis is not None and axis.group in narrow else slice(None)
                for axis in layout[name]
            )
            block[name] = sum(weight * state[name][cut] for state, weight in holders) / sum(w for _, w in holders)
        overwritten = insert(overwritten, block, coverage(layout, window(spec, p)))
    mean = count_mean(
        start, [(state, coverage(layout, window(spec, P[client_level])), w) for client_level, state, w in clients]
    )
    for name, value in mean.items():
        torch.testing.assert_close(value, overwritten[name], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("distil", [False, True])
def test_a_clients_cost_is_that_of_the_widths_that_it_draws(distil: bool) -> None:
    aggregator = server(FjordAggregator, "fjord", distil=distil, capacity=[1e15, 1, 1e15, 1e15, 1e15, 1e15])
    costs = [aggregator.pool[key].cost for key in "abcde"]
    items = aggregator.assign(2, np.arange(1, 7))
    assert items[1].model == "e" and items[1].compute_fraction == items[1].training_fraction == 1.0
    for item in items[2:]:
        drawn = drawn_widths(1, 2, item.client, 5, 2)
        for macs, fraction in (
            ([cost.forward_macs for cost in costs], item.compute_fraction),
            ([cost.training_macs for cost in costs], item.training_fraction),
        ):
            expected = sum(macs[choice] + (macs[0] if distil and choice else 0) for choice in drawn) / 2
            assert fraction is not None and fraction * macs[0] == pytest.approx(expected)
        assert [widths["stem"] for widths in item.objective["widths"]] == [8, 7, 5, 4, 2]


def test_values_of_p_may_stand_in_any_order_and_weights_are_samples() -> None:
    aggregator = server(FjordAggregator, "fjord", p=[0.5, 1.0])
    assert aggregator.rates == [1.0, 0.5]
    (item,) = aggregator.assign(1, np.array([4]))
    assert aggregator.weight(item) == 40.0


def test_groups_give_the_weakest_the_smallest_p() -> None:
    aggregator = server(
        FjordAggregator, "fjord", capacity=[9.0, 1e15, 3.0, 5.0, 1e14, 7.0], p=[0.25, 0.5, 1.0], groups=[3, 1, 2]
    )
    assert aggregator.level_of.tolist() == [1, 0, 2, 2, 0, 2]
    with pytest.raises(UserError, match=r"fjord.groups is \[3, 3\]"):
        server(FjordAggregator, "fjord", p=[0.25, 1.0], groups=[3, 3], shares=None, clients=5)
    with pytest.raises(UserError, match=r"fjord.groups is given and fjord.levels is fix; give one of them"):
        server(FjordAggregator, "fjord", p=[0.25, 1.0], groups=[3, 3], levels="fix")


@pytest.mark.parametrize("distil", [False, True])
def test_the_next_round_costs_the_mean_of_all_draws(distil: bool) -> None:
    aggregator = server(FjordAggregator, "fjord", p=[0.25, 1.0], distil=distil)
    whole, quarter = (aggregator.pool[key].cost.forward_macs for key in aggregator.keys)
    (first, *_) = aggregator.next_items()
    assert first.compute_fraction == pytest.approx(((whole + quarter) / 2 + distil * whole / 2) / whole)


def test_each_width_is_tested_where_that_is_asked_for() -> None:
    plain = server(FjordAggregator, "fjord", p=[0.25, 1.0, 0.5]).evaluation_plan()
    assert plain.named == {"global": "a"}
    aggregator = server(FjordAggregator, "fjord", p=[0.25, 1.0, 0.5], each_width=True)
    assert aggregator.evaluation_plan().named == {"global": "a", "p1": "a", "p0.5": "b", "p0.25": "c"}
    assert aggregator.evaluation_plan().serve == plain.serve
