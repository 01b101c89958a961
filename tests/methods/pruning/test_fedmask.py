"""FedMask: weights never change, masks are learnt, a bit for each travels."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import client_settings

from fedscale_ext import models
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.methods.pruning.fedmask import FedMaskAggregator, MaskClient, mask_bytes
from fedscale_ext.methods.pruning.pruned_types import pack_channels, unpack_channels
from fedscale_ext.submodels import widths_at
from fedscale_ext.tasks.client_files import ClientFiles
from fedscale_ext.training.samples import ClientSamples
from methods.harness import SHAPE, server, updates_for

SPEC = models.named_spec("nasbench201_base", SHAPE, 5)
TARGET = widths_at(SPEC, 0.5)
LR = 1e4  # so that some bits flip in a step
DRAWN = models.initial_state(SPEC, 1)
NAMES = models.parameter_names(SPEC)
WEIGHTS = masks.prunable({name: DRAWN[name] for name in NAMES})


def client(settings: Any) -> MaskClient:
    return MaskClient(settings, SimpleNamespace(spec=lambda key: SPEC))  # type: ignore[arg-type]


def trained(settings: Any, off: float = 0.3) -> dict[str, Any]:
    """From a global mask without some of the weights."""
    generator = torch.Generator().manual_seed(2)
    handed = {name: tensor.clone() for name, tensor in DRAWN.items()}
    for name in WEIGHTS:
        handed[name] *= torch.rand(handed[name].shape, generator=generator) >= off
    module = models.build(SPEC)
    module.load_state_dict(handed)
    x = torch.randn(12, *SHAPE, generator=generator)
    return client(settings).train(ClientSamples(x, torch.randint(0, 5, (12,), generator=generator)), module, settings)


def conf(**changes: Any) -> Any:
    fedmask = {"threshold": 0.5, "lr": LR, "target": TARGET}
    return client_settings(3, **{"client_state": {}, "model_key": "global", "fedmask": fedmask, **changes})


def test_a_client_learns_which_of_the_drawn_weights_count_within_a_structure() -> None:
    result = trained(conf())
    active = unpack_channels(result["client_state"], channels.whole(SPEC))
    assert channels.widths(active) == TARGET
    inside = channels.masks(models.layout(SPEC), active, WEIGHTS)
    bits = masks.unpack(result["client_state"], WEIGHTS)
    for name, drawn in WEIGHTS.items():
        assert torch.equal(result["update_weight"][name], torch.where(bits[name], drawn, 0.0))
        assert not bits[name][~inside[name]].any()
    assert any(bool((~bits[name] & inside[name]).any()) for name in WEIGHTS)
    still = trained(conf(local_steps=1, client_state=result["client_state"]))  # the structure stays
    assert all(
        torch.equal(one, active[g]) for g, one in unpack_channels(still["client_state"], channels.whole(SPEC)).items()
    )


def test_scores_move_by_the_straight_through_gradient() -> None:
    """One step: a bit flips where lr * dL/dw * W * sigma'(1) crosses the distance of 1 to the threshold."""
    active = channels.whole(SPEC)
    statistics = {name: DRAWN[name] for name in DRAWN if name not in NAMES}
    ones = masks.pack({name: torch.ones_like(weight, dtype=torch.bool) for name, weight in WEIGHTS.items()})
    settings = conf(client_state={**pack_channels(active), **ones, **statistics}, local_steps=1, client_momentum=0.0)
    result = trained(settings, off=0.0)
    generator = torch.Generator().manual_seed(2)
    for weight in WEIGHTS.values():
        torch.rand(weight.shape, generator=generator)
    x = torch.randn(12, *SHAPE, generator=generator)
    y = torch.randint(0, 5, (12,), generator=generator)
    module = models.build(SPEC).train()
    module.load_state_dict(DRAWN)
    (rows,) = client(settings).batches(12, settings)
    torch.nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
    slope = float(torch.sigmoid(torch.tensor(1.0)) * torch.sigmoid(torch.tensor(-1.0)))
    flipped = 0
    for name, bit in masks.unpack(result["client_state"], WEIGHTS).items():
        score = 1 - LR * module.get_parameter(name).grad * WEIGHTS[name] * slope  # type: ignore[operator]
        sure = score.abs() > 1e-3
        assert torch.equal(bit[sure], (score > 0)[sure])
        flipped += int((~bit).sum())
    assert flipped


def test_a_clients_own_model_is_what_it_learnt_last() -> None:
    settings = conf()
    result = trained(settings)
    settings = replace(settings, client_state=result["client_state"])
    module = models.build(SPEC)
    client(settings).load_personal_model(module, settings)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, result["update_weight"][name]), name


def test_fine_tuning_begins_with_the_mask_that_the_client_is_served() -> None:
    learnt = trained(conf())["client_state"]
    settings = conf(client_state=learnt, fedmask={"threshold": 0.5, "lr": 1e-9})  # without a target
    served = models.build(SPEC)
    client(settings).load_personal_model(served, settings)
    module = models.build(SPEC)
    module.load_state_dict({name: torch.zeros_like(tensor) for name, tensor in DRAWN.items()})  # no bit of the server
    tuned = client(settings).train(ClientSamples(torch.randn(12, *SHAPE), torch.arange(12) % 5), module, settings)
    assert any(bool((served.state_dict()[name] != 0).any()) for name in WEIGHTS)
    for name in NAMES:
        assert torch.equal(tuned["update_weight"][name], served.state_dict()[name]), name


def test_a_round_begins_with_the_servers_bits_within_the_clients_structure() -> None:
    learnt = trained(conf())["client_state"]
    settings = conf(client_state=learnt)
    bits = {name: torch.arange(weight.numel()).view(weight.shape) % 3 > 0 for name, weight in WEIGHTS.items()}
    module = models.build(SPEC)
    sent = {name: torch.where(bits[name], tensor, 0.0) if name in bits else tensor for name, tensor in DRAWN.items()}
    module.load_state_dict(sent)
    client(settings).begin(module, settings)
    parameters = {name: DRAWN[name] for name in NAMES}
    active = unpack_channels(learnt, channels.whole(SPEC))
    inside = channels.masks(models.layout(SPEC), active, parameters)
    for name, drawn in parameters.items():
        counts = inside[name] & bits.get(name, torch.ones_like(inside[name]))
        assert torch.equal(module.state_dict()[name], torch.where(counts, drawn, 0.0)), name
    for name in DRAWN.keys() - parameters.keys():
        assert torch.equal(module.state_dict()[name], learnt[name]), name


def test_clients_learn_scores_as_the_configuration_says_in_rounds_and_in_tests() -> None:
    settings = {"threshold": 0.3, "lr": 7.0}
    aggregator = server(FedMaskAggregator, "fedmask", param_ratio=[1.0], groups=[6], **settings)
    sent = aggregator.item_of(2).objective["fedmask"]
    assert {name: sent[name] for name in settings} == aggregator.test_objective()["fedmask"] == settings


def test_the_server_takes_the_majority_of_those_who_may_have_a_weight(tmp_path: Path) -> None:
    aggregator = server(FedMaskAggregator, "fedmask", clients=3, param_ratio=[1.0], groups=[3], weighted=False)
    files = ClientFiles(tmp_path, 3)
    aggregator.client_channels = SimpleNamespace(files=files)
    initial = dict(aggregator.pool["global"].state)
    drawn, generator = aggregator._drawn, torch.Generator().manual_seed(1)
    active = {g: torch.rand(3, len(one), generator=generator) < 0.7 for g, one in channels.whole(SPEC).items()}
    updates, bits, inside = updates_for(aggregator, aggregator.assign(1, np.array([1, 2, 3]))), [], []
    for index, update in enumerate(updates):
        client_active = {group: one[index] for group, one in active.items()}
        inside.append(channels.masks(aggregator.layout, client_active, drawn))
        bits.append(
            {name: (torch.rand(w.shape, generator=generator) < 0.5) & inside[-1][name] for name, w in drawn.items()}
        )
        files.write(1, "global", update.client, {**pack_channels(client_active), **masks.pack(bits[-1])})
        state = {**aggregator.pool["global"].state, **{n: torch.where(bits[-1][n], w, 0.0) for n, w in drawn.items()}}
        state |= {name: torch.zeros_like(DRAWN[name]) for name in NAMES if name not in drawn}  # of pruned channels
        aggregator.collect(1, update, state)
    aggregator.aggregate(1, updates, {})
    for name, weight in drawn.items():
        may = sum(one[name].long() for one in inside)
        does = sum(one[name].long() for one in bits)
        expected = torch.where(may == 0, True, 2 * does > may)  # all counted before
        assert torch.equal(aggregator.pool["global"].state[name], torch.where(expected, weight, 0.0))
    for name in set(NAMES) - drawn.keys():  # what BatchNorm learns stays as drawn
        assert torch.equal(aggregator.pool["global"].state[name], initial[name])


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.7])
def test_a_bit_that_just_the_threshold_of_clients_have_is_not_kept(tmp_path: Path, threshold: float) -> None:
    aggregator = server(
        FedMaskAggregator, "fedmask", clients=10, param_ratio=[1.0], groups=[10], weighted=False, threshold=threshold
    )
    files = ClientFiles(tmp_path, 10)
    aggregator.client_channels = SimpleNamespace(files=files)
    updates = updates_for(aggregator, aggregator.assign(1, np.arange(1, 11)))
    whole = {group: one.bool() for group, one in channels.whole(SPEC).items()}
    for more in (0, 1):
        for update in updates:
            have = update.client <= round(10 * threshold) + more
            bits = {name: torch.full(weight.shape, have) for name, weight in aggregator._drawn.items()}
            files.write(1 + more, "global", update.client, {**pack_channels(whole), **masks.pack(bits)})
            state = {n: w if have else torch.zeros_like(w) for n, w in aggregator._drawn.items()}
            aggregator.collect(1, update, {**aggregator.pool["global"].state, **state})
        aggregator.aggregate(1, updates, {})
        for name, weight in aggregator._drawn.items():
            assert torch.equal(aggregator.pool["global"].state[name], weight if more else torch.zeros_like(weight))


def test_a_bit_for_each_weight_of_the_structure_travels() -> None:
    aggregator = server(FedMaskAggregator, "fedmask", param_ratio=[0.4], groups=[6])
    every = sum(-(-weight.numel() // 8) for weight in aggregator._drawn.values())
    assert mask_bytes(aggregator.pool["global"].spec) == every < aggregator.pool["global"].cost.bytes / 25
    first = aggregator.assign(1, np.array([1]))[0]
    small = mask_bytes(next(iter(aggregator.type_specs().values())))
    assert first.bytes == every and first.upload == small + aggregator.bit_bytes
    aggregator.has_trained[0] = True
    later = aggregator.assign(2, np.array([1]))[0]
    assert later.bytes == later.upload == small and later.compute_fraction < 1.0


@pytest.mark.parametrize("ratio", [0.4, 1.0])
def test_only_the_batch_by_which_a_client_prunes_passes_the_whole_model(ratio: float) -> None:
    aggregator = server(FedMaskAggregator, "fedmask", param_ratio=[ratio], groups=[6])
    part, whole = models.cost(next(iter(aggregator.type_specs().values()))), aggregator.pool["global"].cost
    sizes = aggregator.task.step_sizes(1, {})
    first = aggregator.assign(1, np.array([1]))[0]
    aggregator.has_trained[0] = True
    later = aggregator.assign(2, np.array([1]))[0]
    for item, beside in ((first, sizes[0] / sizes.sum()), (later, 0.0)):
        assert item.compute_fraction == pytest.approx(part.forward_macs / whole.forward_macs + beside)
        assert item.training_fraction == pytest.approx(part.training_macs / whole.training_macs + beside)


def test_a_client_that_keeps_all_channels_sends_their_bits_once() -> None:
    aggregator = server(FedMaskAggregator, "fedmask", param_ratio=[1.0], groups=[6])
    first = aggregator.assign(1, np.array([1]))[0]
    aggregator.has_trained[0] = True
    later = aggregator.assign(2, np.array([1]))[0]
    assert first.upload is not None and first.upload - aggregator.bit_bytes == later.upload == later.bytes
