"""FedSkel: skeletons, what they let through, what is exchanged."""

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, client_settings

from fedscale_ext import models
from fedscale_ext.core.types import State
from fedscale_ext.methods.pruning import masks
from fedscale_ext.methods.pruning.fedskel import (
    SKELETON,
    FedSkelAggregator,
    SkeletonClient,
    filters,
    skeleton_of,
)
from fedscale_ext.tasks.client_files import ClientFiles
from fedscale_ext.util.macs import MacCounter
from methods.harness import CLASSES, SHAPE, samples, server, trained, updates_for

SPEC = models.named_spec("nasbench201_base", SHAPE, 5)
DATA = samples(10, dtype=torch.float32)


def network(seed: int = 7) -> torch.nn.Module:
    module = models.build(SPEC)
    module.load_state_dict(models.initial_state(SPEC, seed))
    return module


def conf(sets: bool, state: State | None = None, **changes: Any) -> Any:
    objective = {"set": sets, "share": 0.4}
    return client_settings(3, **{"client_state": state or {}, "fedskel": objective, **changes})


def of(state: State) -> State:
    return skeleton_of(state, filters(network()), network().state_dict())


def test_the_skeleton_is_the_filters_that_answer_most_and_counting_changes_nothing() -> None:
    settings, module = conf(True, local_steps=1), network()
    result = SkeletonClient(settings, NO_BENCH).train(DATA, module, settings)
    data, sums = DATA, {}
    (rows,) = SkeletonClient(settings, NO_BENCH).batches(10, settings)
    other = network().train()
    for name, layer in filters(other).items():
        layer.register_forward_hook(lambda _l, _i, out, name=name: sums.update({name: out.abs().mean((2, 3)).sum(0)}))
    other(data.x[rows])
    for name, one in of(result["client_state"]).items():
        assert int(one.sum()) == masks.num_largest(len(one), 0.4)
        assert sums[name][one].min() >= sums[name][~one].max()
    plain = network()
    SkeletonClient(settings, NO_BENCH).train(DATA, plain, conf(True, local_steps=1, client_state=None))
    assert all(torch.equal(t, plain.state_dict()[name]) for name, t in result["update_weight"].items())
    assert all(torch.equal(result["client_state"][name], t) for name, t in module.state_dict().items())


def test_other_filters_stay_and_pass_no_gradient() -> None:
    first = conf(True)
    state = SkeletonClient(first, NO_BENCH).train(DATA, network(), first)["client_state"]
    settings, served = conf(False, state, local_steps=1, client_momentum=0.0), network(9)
    begin = {name: tensor.clone() for name, tensor in served.state_dict().items()}
    skeleton = of(state)
    after = SkeletonClient(settings, NO_BENCH).train(DATA, served, settings)["update_weight"]
    start = {}
    for name, tensor in begin.items():
        layer = name.removesuffix(".weight")
        inside = skeleton[layer].view(-1, 1, 1, 1) if layer in skeleton else torch.tensor(False)
        start[name] = torch.where(inside, tensor, state[name])  # the server's where its skeleton is, else its own
        if layer in skeleton:
            assert torch.equal(after[name][~skeleton[layer]], state[name][~skeleton[layer]])
    # against torch's autograd on a network whose convolutions answer with a detached part
    other = models.build(SPEC)
    other.load_state_dict(start)
    for name, layer in filters(other).items():
        inside = skeleton[name].view(-1, 1, 1).float()
        layer.register_forward_hook(lambda _l, _i, out, inside=inside: out * inside + (out * (1 - inside)).detach())
    (rows,) = SkeletonClient(settings, NO_BENCH).batches(10, settings)
    data = DATA
    torch.nn.functional.cross_entropy(other.train()(data.x[rows]), data.y[rows]).backward()
    moved = 0
    for name, parameter in other.named_parameters():
        layer, decay = name.removesuffix(".weight"), settings.client_weight_decay * start[name]
        if layer in skeleton:  # the others do not decay either
            decay = torch.where(skeleton[layer].view(-1, 1, 1, 1), decay, 0.0)
        step = 0.0 if parameter.grad is None else settings.learning_rate * (parameter.grad + decay)
        expected = start[name] - step
        torch.testing.assert_close(after[name], expected, atol=1e-6, rtol=1e-5)
        moved += not torch.equal(after[name], start[name])
    assert moved > 3


def test_filters_are_averaged_over_the_skeletons_that_hold_them(tmp_path: Path) -> None:
    aggregator = server(FedSkelAggregator, "fedskel", clients=3, param_ratio=[0.5], groups=[3], weighted=False, every=3)
    files = ClientFiles(tmp_path, 3)
    aggregator.client_channels = SimpleNamespace(files=files)
    aggregator.has_trained[:], generator = True, torch.Generator().manual_seed(4)
    old = {name: tensor.clone() for name, tensor in aggregator.pool["global"].state.items()}
    updates, chosen, states = updates_for(aggregator, aggregator.assign(2, np.array([1, 2, 3]))), [], []
    for update in updates:
        one = {
            name: torch.rand(layer.out_channels, generator=generator) < 0.5
            for name, layer in aggregator._layers.items()
        }
        files.write(2, "global", update.client, masks.pack(one, SKELETON))
        chosen.append(one)
        states.append(trained(old, update.client))
        aggregator.collect(2, update, states[-1])
    aggregator.aggregate(2, updates, {})
    new = aggregator.pool["global"].state
    for name, tensor in old.items():
        layer = name.removesuffix(".weight")
        if layer not in chosen[0]:
            assert torch.equal(new[name], tensor)  # norms and the classifier are the clients' own
            continue
        for row in range(len(tensor)):
            holders = [states[index][name][row] for index in range(3) if chosen[index][layer][row]]
            expected = torch.stack(holders).mean(0) if holders else tensor[row]
            torch.testing.assert_close(new[name][row], expected)


def test_a_type_tells_that_forward_passes_are_whole() -> None:
    whole = models.cost(models.named_spec("nasbench201_base", SHAPE, CLASSES)).forward_macs
    aggregator = server(
        FedSkelAggregator, "fedskel", clients=3, capacity=[whole - 1, whole, whole], param_ratio=[0.4], groups=[3]
    )
    assert [event["message"] for event in aggregator.events][-1] == (
        f"each step of fedskel passes the whole model forward, {whole:,} MACs per sample, which 1 of 3 clients do not "
        "afford; a type's share of the parameters is the share of each convolution's filters that it trains and sends, "
        "and no client has a network of a type's size"
    )


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_rounds_traffic_and_compute(share: float) -> None:
    aggregator = server(FedSkelAggregator, "fedskel", clients=3, param_ratio=[share], groups=[3], every=2)
    cost, everybody = aggregator.pool["global"].cost, np.array([1, 2, 3])
    bits = sum(-(-layer.out_channels // 8) for layer in aggregator._layers.values())
    for item in aggregator.assign(1, everybody):
        assert item.objective["fedskel"]["set"] and item.bytes == cost.bytes and item.upload == cost.bytes + bits
    aggregator.has_trained[:2] = True
    items = aggregator.assign(2, everybody)
    assert [item.objective["fedskel"]["set"] for item in items] == [False, False, True]
    weights = {name: aggregator.pool["global"].state[f"{name}.weight"] for name in aggregator._layers}
    skeleton_bytes = sum(w[0].nbytes * masks.num_largest(len(w), aggregator.shares[0]) for w in weights.values())
    assert items[0].bytes == skeleton_bytes and items[0].upload is None
    # the forward pass is whole, the backward pass of convolutions is that of the skeleton
    assert items[0].compute_fraction + items[0].forward_fraction == pytest.approx(1.0)
    assert share == 1.0 or items[0].compute_fraction < 0.5
    assert all(item.objective["fedskel"]["set"] for item in aggregator.assign(3, everybody))


def test_the_round_around_which_clients_are_tested_is_the_next_one() -> None:
    aggregator = server(FedSkelAggregator, "fedskel", clients=2, param_ratio=[0.4], groups=[2], every=2)
    sets = []
    for round in (1, 2, 3):
        aggregator.assign(round, np.array([1, 2]))
        aggregator.has_trained[0] = True
        sets.append([item.objective["fedskel"]["set"] for item in aggregator.next_items()])
    assert sets == [[False, True], [True, True], [False, True]]  # the second client never trained


@pytest.mark.parametrize("sets", [False, True])
def test_a_round_begins_with_the_clients_network_unless_it_sets_the_skeleton(sets: bool) -> None:
    first = conf(True)
    state = SkeletonClient(first, NO_BENCH).train(DATA, network(), first)["client_state"]
    settings, sent, model = conf(sets, state), network(9), network(9)
    if not sets:
        SkeletonClient(settings, NO_BENCH).load_personal_model(sent, settings)
    SkeletonClient(settings, NO_BENCH).begin(model, settings)
    assert all(torch.equal(tensor, sent.state_dict()[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(model.state_dict()["stem.conv.weight"], network(9).state_dict()["stem.conv.weight"]) == sets


class Parted(torch.nn.Module):
    """A convolution of which only the first filters get gradients, as two convolutions."""

    def __init__(self, layer: torch.nn.Conv2d, inside: int) -> None:
        super().__init__()
        self.few, self.rest = copy.deepcopy(layer), copy.deepcopy(layer)
        self.few.weight = torch.nn.Parameter(layer.weight[:inside].detach().clone())
        self.rest.weight = torch.nn.Parameter(layer.weight[inside:].detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            rest = self.rest(x)
        return torch.cat([self.few(x), rest], 1)


def test_a_ratio_is_the_share_of_filters_whatever_widths_come_near_it() -> None:
    keys: dict[str, Any] = {"param_ratio": [0.3, 0.1], "groups": [2, 1], "model": "cnn_small"}
    aggregator = server(FedSkelAggregator, "fedskel", clients=3, **keys)
    assert aggregator.shares == pytest.approx([0.3, 0.1])
    every = models.cost(models.named_spec("cnn_small", SHAPE, CLASSES)).parameters
    few = models.cost(models.named_spec("lenet_6k", SHAPE, CLASSES)).parameters
    keys = {"match_params": ["cnn_small", "lenet_6k"], "groups": [2, 1], "model": "cnn_small"}
    assert server(FedSkelAggregator, "fedskel", clients=3, **keys).shares == pytest.approx([1.0, few / every])


@pytest.mark.parametrize("ratio", [0.4, 0.05])
def test_macs_are_those_of_gradients_that_pass_only_skeleton_filters(ratio: float) -> None:
    aggregator = server(FedSkelAggregator, "fedskel", clients=1, param_ratio=[ratio], groups=[1], every=2)
    aggregator.has_trained[:] = True
    (item,) = aggregator.assign(2, np.array([1]))
    module = network()
    for name, layer in filters(network()).items():
        assert layer.bias is None and layer.groups == 1
        parent, _, attribute = name.rpartition(".")
        parted = Parted(layer, masks.num_largest(layer.out_channels, aggregator.shares[0]))
        setattr(module.get_submodule(parent), attribute, parted)
    counter, data = MacCounter(), DATA
    with counter.counting():
        torch.nn.functional.cross_entropy(module.train()(data.x), data.y).backward()
    cost = aggregator.pool["global"].cost
    macs = item.compute_fraction * cost.training_macs + item.forward_fraction * cost.forward_macs
    assert macs == pytest.approx((counter.read() or 0) / 10, rel=1e-12)


@pytest.mark.parametrize(("keys", "warned"), [({"rounds": 1}, True), ({"every": 1}, True), ({"rounds": 2}, False)])
def test_a_job_without_rounds_that_train_skeletons_says_so(keys: dict[str, Any], warned: bool) -> None:
    aggregator = server(FedSkelAggregator, "fedskel", param_ratio=(1.0, 0.4), groups=(3, 3), **keys)
    assert any(notice.startswith("no client trains only its skeleton") for notice in aggregator.notices) == warned
