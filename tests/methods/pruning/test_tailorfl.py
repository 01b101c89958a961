"""TailorFL: gates, submodels, and how the server tunes them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import client_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.methods.pruning import channels
from fedscale_ext.methods.pruning.pruned_types import pack_channels, unpack_channels
from fedscale_ext.methods.pruning.tailorfl import GATE, TailorClient, TailorFLAggregator, tuned
from fedscale_ext.submodels import widths_at
from fedscale_ext.tasks.client_files import ClientFiles
from methods.harness import SHAPE, samples, server, trained, updates_for

SPEC = models.named_spec("lenet_6k", SHAPE, 5)
TARGET = widths_at(SPEC, 0.5)


def network() -> torch.nn.Module:
    module = models.build(SPEC)
    module.load_state_dict(models.initial_state(SPEC, 7))
    return module


def client(settings: Any) -> TailorClient:
    return TailorClient(settings, SimpleNamespace(spec=lambda key: SPEC))  # type: ignore[arg-type]


def conf(**changes: Any) -> Any:
    objective = {"target": TARGET, "sparsity": 1e-3}
    return client_settings(3, **{"client_state": {}, "model_key": "global", "tailor": objective, **changes})


def test_the_first_round_learns_gates_and_keeps_the_channels_with_the_largest() -> None:
    settings = conf()
    result = client(settings).train(samples(12, dtype=torch.float32), network(), settings)
    active = unpack_channels(result["client_state"], channels.whole(SPEC))
    assert channels.widths(active) == TARGET
    for group, one in active.items():
        gate = result["client_state"][f"{GATE}{group}"].abs()
        assert gate[one].min() >= gate[~one].max() and len(gate.unique()) > 1
    names = models.parameter_names(SPEC)
    masks = channels.masks(models.layout(SPEC), active, {name: result["update_weight"][name] for name in names})
    assert all(not result["update_weight"][name][~mask].any() for name, mask in masks.items())


def test_later_rounds_train_the_submodel_and_its_gates_alone() -> None:
    active = {group: torch.arange(len(one)) < TARGET[group] for group, one in channels.whole(SPEC).items()}
    gates = {f"{GATE}{group}": torch.full((len(one),), 0.5) for group, one in active.items()}
    settings = conf(client_state={**pack_channels(active), **gates})
    result = client(settings).train(samples(12, dtype=torch.float32), network(), settings)
    again = unpack_channels(result["client_state"], channels.whole(SPEC))
    for group, one in active.items():
        assert torch.equal(again[group], one)  # the structure is the server's from now on
        gate = result["client_state"][f"{GATE}{group}"]
        assert (gate[~one] == 0.5).all() and (gate[one] != 0.5).any()
    served, settings = network(), replace(settings, client_state=result["client_state"])
    client(settings).load_personal_model(served, settings)
    weights = dict(network().named_parameters())
    layout = models.layout(SPEC)
    scaled = channels.gated(layout, {g: result["client_state"][f"{GATE}{g}"] for g in active}, weights)
    masks = channels.masks(layout, active, weights)
    for name, parameter in served.named_parameters():
        torch.testing.assert_close(parameter, torch.where(masks[name], scaled[name], 0.0))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(2, 6), st.integers(1, 8), st.floats(0, 1), st.integers(0, 99))
def test_tuning_stays_within_what_clients_have_and_ignores_their_order(
    n: int, width: int, share: float, seed: int
) -> None:
    profiles = torch.rand(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    smoothed = tuned(profiles, share)
    assert bool((smoothed <= profiles.max(0).values + 1e-9).all()) and bool(
        (smoothed >= profiles.min(0).values - 1e-9).all()
    )
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + 1))
    torch.testing.assert_close(tuned(profiles[order], share), smoothed[order])
    assert torch.equal(tuned(profiles, 0.0), profiles)


def test_tuning_goes_to_those_who_are_alike() -> None:
    profiles = torch.tensor([[1.0, 0.0, 0.2], [0.8, 0.1, 0.2], [0.0, 1.0, 0.2]], dtype=torch.float64)
    smoothed = tuned(profiles, 1.0)
    torch.testing.assert_close(smoothed[0], profiles[1])
    torch.testing.assert_close(smoothed[1], profiles[0])
    assert torch.equal(smoothed[2], profiles[2])  # like nobody


def test_the_server_writes_the_structures_that_it_tuned(tmp_path: Path) -> None:
    aggregator = server(TailorFLAggregator, "tailorfl", model="lenet_6k", tuning=1.0, param_ratio=[0.5], groups=[6])
    files = ClientFiles(tmp_path, 6)
    aggregator.client_channels = SimpleNamespace(files=files)
    cost = aggregator.pool["global"].cost.bytes
    first = aggregator.assign(1, np.array([1, 2, 3]))
    assert first[0].bytes == cost > first[0].upload
    updates = updates_for(aggregator, first)
    for update in updates:
        falling = update.client != 3
        gates = {f"{GATE}{g}": torch.arange(every.shape[1]).float() * (-1 if falling else 1) + 100 * update.client
                 for g, every in aggregator.active.items()}  # fmt: skip
        active = channels.strongest(
            {g: gates[f"{GATE}{g}"] for g in aggregator.active}, aggregator.target(update.client)
        )
        files.write(1, "global", update.client, {**pack_channels(active), **gates})
        aggregator.collect(1, update, trained(aggregator.pool["global"].state, update.client))
    files.end_round()
    weights = [aggregator.weight(update.item) for update in updates]
    assert weights[1] == 2 * weights[0] < 10.0 * 2  # by samples and by what is kept
    aggregator.aggregate(1, updates, {})
    for number in (1, 2, 3):
        active = unpack_channels(files.read("global", number) or {}, channels.whole(aggregator.pool["global"].spec))
        assert channels.widths(active) == aggregator.target(number)
        assert all(torch.equal(one, aggregator.active[group][number - 1]) for group, one in active.items())
    assert aggregator.personal_bytes()[0] < cost == aggregator.personal_bytes()[3]  # client 4 has not trained
    later = aggregator.assign(2, np.array([1]))[0]
    assert later.bytes < cost and later.compute_fraction < 1.0
    part, whole = aggregator.part_cost(1), aggregator.pool["global"].cost
    assert later.compute_fraction * whole.forward_macs == pytest.approx(part.forward_macs)
    assert later.training_fraction is not None
    assert later.training_fraction * whole.training_macs == pytest.approx(part.training_macs)  # another ratio
    assert later.training_fraction != pytest.approx(later.compute_fraction, rel=1e-3)
