"""Hermes: when and what clients prune, group lasso, what overlaps."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import client_settings
from hypothesis import given, settings
from hypothesis import strategies as st

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.core.types import State
from fedscale_ext.methods.pruning import channels
from fedscale_ext.methods.pruning.hermes import HermesAggregator, HermesClient, next_widths
from fedscale_ext.methods.pruning.pruned_types import pack_channels, unpack_channels
from fedscale_ext.models.stacked.network import stacked
from fedscale_ext.submodels import widths_at
from fedscale_ext.training.optimizers.sgd import Sgd
from fedscale_ext.training.resident import Cohort
from fedscale_ext.training.samples import ClientSamples
from methods.harness import SHAPE, judged_right, samples, server, updates_for

SPEC = models.named_spec("nasbench201_base", SHAPE, 5)
TARGET = widths_at(SPEC, 0.5)


def network() -> torch.nn.Module:
    module = models.build(SPEC).double()
    module.load_state_dict(models.initial_state(SPEC, 7))
    return module


def known(data: ClientSamples, client: int = 3) -> ClientSamples:
    """Labels that the handed model gets right."""
    return judged_right(network(), data, conf(client))


def conf(client: int = 3, active: channels.Active | None = None, **changes: Any) -> Any:
    objective = {"threshold": 0.9, "step": 0.25, "target": TARGET}
    state = {} if active is None else pack_channels(active)
    values = {"client_state": state, "test_bsz": 4, "model_key": "global", "held_out": 0.25}
    return client_settings(client, **{**values, "hermes": objective, "group_lasso": 0.01, **changes})


def client(settings: Any) -> HermesClient:
    return HermesClient(settings, SimpleNamespace(spec=lambda key: SPEC, module=lambda key: network()))  # type: ignore[arg-type]


def after(data: ClientSamples, settings: Any) -> channels.Active:
    module = network()
    trains, client_state = client(settings).start_masked(data, module, settings)
    active = unpack_channels(client_state, channels.whole(SPEC))
    mask = channels.masks(models.layout(SPEC), active, dict(module.named_parameters()))
    for name, parameter in module.named_parameters():
        assert torch.equal(trains[name], mask[name]) and not parameter[~mask[name]].any()
    return active


def test_a_good_model_loses_its_weakest_channels_down_to_the_target() -> None:
    data = known(samples(12))
    active = after(data, conf())
    whole = channels.widths(channels.whole(SPEC))
    assert channels.widths(active) == next_widths(whole, TARGET, 0.25)
    strength = channels.strength(models.layout(SPEC), dict(network().named_parameters()))
    for group, one in active.items():
        assert strength[group][one].min() >= strength[group][~one].max()
    target = channels.strongest(strength, TARGET)
    again = after(data, conf(active=target))  # the target is where it ends
    assert all(torch.equal(one, target[group]) for group, one in again.items())


def test_a_poor_model_is_not_pruned() -> None:
    data = known(samples(12))
    wrong = ClientSamples(data.x, (data.y + 1) % 5)
    assert all(bool(one.all()) for one in after(wrong, conf()).values())


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(1, 600), st.floats(0.01, 1.0), st.floats(0.01, 0.99))
def test_widths_fall_to_the_target_and_never_below(width: int, rate: float, step: float) -> None:
    target, have, taken = {"g": max(1, round(width * rate))}, {"g": width}, 0
    while have != target:
        fewer = next_widths(have, target, step)
        assert target["g"] <= fewer["g"] < have["g"]
        have, taken = fewer, taken + 1
    assert taken <= width


@pytest.mark.parametrize("cohort", [False, True])
def test_group_lasso_is_the_gradient_of_the_sum_of_filters_norms(cohort: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    weight, bias = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 3, 2, 2), (4,)))
    weight[2] = 0.0  # no direction: it stays
    zeros = [torch.zeros_like(weight), torch.zeros_like(bias)]
    sgd = Sgd(0.1, 0.0, 0.0, 0.0, None, lasso=0.3)
    start = [weight.clone(), bias.clone()]
    lead = (lambda t: t[None]) if cohort else (lambda t: t)
    parameters = [lead(one.clone()) for one in start]
    sgd.begin(parameters).step(parameters, [lead(one) for one in zeros], cohort=cohort)
    expected = weight.clone().requires_grad_()
    norms = expected.flatten(1)[[0, 1, 3]].norm(dim=1).sum()
    (gradient,) = torch.autograd.grad(norms, expected)
    torch.testing.assert_close(parameters[0].view(4, 3, 2, 2), weight - 0.1 * 0.3 * gradient)
    assert torch.equal(parameters[1].view(4), bias)


def test_side_by_side_is_one_after_another() -> None:
    data = [samples(20, 0), known(samples(9, 1), 1)]  # the second one prunes
    confs = [conf(index, local_steps=6 - index) for index in range(2)]
    stack, module = stacked(network(), SHAPE), network()
    assert stack is not None
    cohort = Cohort(stack, module, SHAPE, 2, torch.device("cpu"), channels_last=True)
    cohort.restore({name: tensor.detach().clone() for name, tensor in module.state_dict().items()})
    together = client(confs[0]).train_cohort(data, cohort, confs)
    states = cohort.trained([one.local_steps for one in confs])
    for index, other in enumerate(together):
        settings = conf(index, local_steps=6 - index)
        alone = client(settings).train(data[index], network(), settings)
        assert isinstance(other, dict)
        assert all(torch.equal(one, alone["client_state"][name]) for name, one in other["client_state"].items())
        for name, tensor in alone["update_weight"].items():
            assert float((tensor - states[name][index]).abs().max()) < 1e-9
    assert not all(
        bool(one.all()) for one in unpack_channels(together[1]["client_state"], channels.whole(SPEC)).values()
    )  # type: ignore[index]


def test_only_what_overlaps_travels() -> None:
    aggregator = server(HermesAggregator, "hermes", model="lenet_6k", clients=3, ranges=["1-1", "2-2", "3-3"])
    state: State = aggregator.pool["global"].state
    whole = sum(tensor.nbytes for tensor in state.values())
    bits = sum(-(-every.shape[1] // 8) for every in aggregator.active.values())
    first = aggregator.assign(1, torch.arange(1, 4).numpy())
    assert [item.bytes for item in first] == [whole + bits] * 3 and [item.compute_fraction for item in first] == [
        1.0
    ] * 3
    for group, every in aggregator.active.items():
        every[0, 0] = every[1, 0] = False  # client 3 has the first channels for itself
        assert every[2].all(), group
    items = aggregator.assign(2, torch.arange(1, 4).numpy())
    masks = channels.masks(aggregator.layout, aggregator.active_channels(1), state)
    shared = sum(int(mask.sum()) * state[name].itemsize for name, mask in masks.items())
    assert [item.bytes for item in items] == [shared + bits] * 3
    assert items[0].compute_fraction == items[1].compute_fraction < items[2].compute_fraction == 1.0
    part, every = aggregator.part_cost(1), aggregator.pool["global"].cost
    assert items[0].training_fraction == pytest.approx(part.training_macs / every.training_macs)


def test_passes_over_validation_samples_count_until_a_client_is_pruned_to_its_target() -> None:
    aggregator = server(HermesAggregator, "hermes", clients=3, param_ratio=[0.5, 1.0], groups=[1, 2], validation=0.25)
    pruning, _, done = sorted(aggregator.assign(1, np.array([1, 2, 3])), key=lambda item: -item.forward_fraction)
    samples = int(aggregator.task.train_sizes[pruning.client - 1])
    seen = aggregator.task.step_sizes(pruning.client, pruning.overrides).sum()
    # BatchNorm's statistics are measured on the other samples
    assert pruning.forward_fraction == pytest.approx(pruning.compute_fraction * samples / seen)
    assert done.forward_fraction == 0.0


def test_the_round_in_which_a_client_prunes_counts_the_steps_of_what_is_left() -> None:
    aggregator = server(HermesAggregator, "hermes", clients=3, groups=[1, 1, 1])
    (item,) = aggregator.assign(1, np.array([2]))
    (update,) = updates_for(aggregator, [item])
    for every in aggregator.active.values():
        every[1, every.shape[1] // 2 :] = False  # as the client returns it
    done, part, whole = aggregator.work_done(update), aggregator.part_cost(2), aggregator.pool["global"].cost
    assert done.compute_fraction == pytest.approx(part.forward_macs / whole.forward_macs) and part != whole
    assert done.training_fraction == pytest.approx(part.training_macs / whole.training_macs)
    assert (done.forward_fraction, done.bytes) == (item.forward_fraction, item.bytes)


@pytest.mark.parametrize("start", ["whole", "type"])
def test_clients_may_begin_at_their_types_size(job_file: Path, start: str) -> None:
    keys = {"method": "hermes", "model": "nasbench201_base", "rounds": 2, "num_participants": 5, "local_steps": 2,
            "hermes.groups": [2, 2, 3], "hermes.param_ratio": [1.0, 0.4, 0.1], "hermes.start": start,
            "hermes.threshold": 1.0, "record_internals": True, "test_around_training": True}  # fmt: skip
    summary = fedscale_ext.run(job_file, job_name=start, **keys)
    share = {"x1": 1.0, "x0.4": 0.4, "x0.1": 0.1}
    rows = {row["type"]: row["kept_share"] for row in summary["results"]["types"] if row["type"] in share}
    for key, ratio in share.items():  # nobody's validation is all right, so that nobody prunes
        assert rows[key] == pytest.approx(1.0 if start == "whole" else ratio, rel=0.35)
    lines = (Path(summary["log_dir"]) / "internals.jsonl").read_text().splitlines()
    fractions = [json.loads(line)["compute_fraction"] for line in lines]
    assert all(fraction <= 1 for each in fractions for fraction in each.values())
    assert (min(map(min, (each.values() for each in fractions))) < 0.5) == (start == "type")
    assert summary["before_training"]["per_client"] == summary["accuracy"]["per_client"]


def test_a_client_that_begins_at_its_types_size_trains_and_tests_the_leading_channels() -> None:
    aggregator = server(HermesAggregator, "hermes", groups=[2, 2, 2], start="type", model="nasbench201_base")
    for client in range(1, 7):
        target = aggregator.target(client)
        active = aggregator.active_channels(client)
        assert channels.widths(active) == target
        assert all(bool(one[: target[group]].all()) for group, one in active.items())
    aggregator.assign(1, np.arange(1, 7))
    assert min(aggregator.item_of(client).compute_fraction for client in range(1, 7)) < 1
    assert max(aggregator.item_of(client).compute_fraction for client in range(1, 7)) == 1


def test_a_job_in_which_nobody_pruned_says_so_at_its_end() -> None:
    keys: dict[str, Any] = {"param_ratio": (1.0, 0.4), "groups": (3, 3)}
    aggregator = server(HermesAggregator, "hermes", **keys)
    assert aggregator.unfinished_notice() == (
        "no client has pruned: that takes an accuracy of at least 0.5, hermes.threshold, on its validation samples"
    )
    for one in aggregator.active.values():
        one[2, -1] = False
    assert aggregator.unfinished_notice() is None
    assert server(HermesAggregator, "hermes", start="type", **keys).unfinished_notice() is None
    whole = server(HermesAggregator, "hermes", param_ratio=(1.0,), groups=(6,))
    assert whole.unfinished_notice() is None  # nobody was to prune
