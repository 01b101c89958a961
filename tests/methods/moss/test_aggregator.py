"""Moss's rounds: who has which type, what becomes of each type's model, what a checkpoint holds."""

from typing import Any

import numpy as np
import pytest
import torch

from fedscale_ext.core.errors import UserError
from methods.harness import equal, means_of, play, pool_states, updates_for

from .server_of import MACS, TYPES, WithOtherData, moss

CNN, MLP, LENET = TYPES


def assigned(aggregator: Any) -> list[str]:
    return [item.model for item in aggregator.assign(1, np.arange(1, 7))]


def notices(aggregator: Any) -> list[str]:
    return [event["message"] for event in aggregator.events if event["event"] == "notice"]


def test_groups_give_the_weakest_devices_the_type_of_fewest_macs() -> None:
    by_macs = sorted(TYPES, key=MACS.__getitem__)
    aggregator = moss(groups=[3, 1, 2], capacity=[6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    sizes = dict(zip(TYPES, [3, 1, 2], strict=True))
    weakest_first = [name for name in by_macs for _ in range(sizes[name])]
    assert assigned(aggregator) == weakest_first[::-1]
    (notice,) = [
        message for message in notices(aggregator) if message.startswith("moss gives 3 of 6 clients cnn_small (")
    ]
    assert ", 1 single_exit_mlp (" in notice and f"{MACS['single_exit_mlp']:,} MACs per sample" in notice


def test_groups_and_ranges_tell_which_types_no_device_affords() -> None:
    dear = [name for name, macs in MACS.items() if macs > LOW]
    for dealt in ({}, {"groups": None, "ranges": ["1-2", "3-4", "5-6"]}):
        (notice,) = [message for message in notices(moss(capacity=[LOW] * 6, **dealt)) if "affords" in message]
        assert f"no device affords {' or '.join(dear)} (the strongest has {LOW:,.0f} MACs per sample)" in notice
        assert f"moss.{'ranges' if dealt else 'groups'} says who has it all the same" in notice
    assert not [message for message in notices(moss(capacity=[HIGH] * 6)) if "affords" in message]


def test_groups_tell_how_many_clients_have_a_type_beyond_their_capacity() -> None:
    message = "beyond their capacity: moss.groups deals types whatever devices afford"
    assert f"4 clients have a type that is {message}" in notices(moss(groups=[2, 2, 2], capacity=[LOW] * 6))
    assert moss(groups=[2, 2, 2], capacity=[LOW] * 6).beyond_capacity == 4
    forced = moss(capacity=[LOW - 1, LOW, MIDDLE, MIDDLE, HIGH, HIGH], groups=None)  # the first has the smallest type
    assert forced.beyond_capacity == 1 and any("they have its type all the same: 1" in said for said in notices(forced))
    weak_last = [HIGH] * 3 + [MIDDLE] * 2 + [LOW - 1]
    assert f"1 client has a type that is {message}" in notices(moss(groups=[2, 2, 2], capacity=weak_last))
    assert not [said for said in notices(moss(groups=[2, 2, 2], capacity=[HIGH] * 6)) if message in said]


def test_ranges_name_the_clients_of_each_type() -> None:
    aggregator = moss(groups=None, ranges=["5-6", "1-1", "2-4"])
    assert assigned(aggregator) == [MLP, LENET, LENET, LENET, CNN, CNN]
    assert aggregator.evaluation_plan().serve == assigned(aggregator) and set(
        aggregator.evaluation_plan().named
    ) == set(TYPES)


def test_by_default_a_device_has_the_largest_type_that_it_affords() -> None:
    low, middle, high = sorted(MACS.values())
    names = {value: name for name, value in MACS.items()}
    aggregator = moss(groups=None, capacity=[low, middle - 1, middle, high - 1, high, 9 * high])
    assert assigned(aggregator) == [names[value] for value in (low, low, middle, middle, high, high)]
    assert aggregator.smallest_spec() == aggregator.pool[names[low]].spec
    assert aggregator.expected_shares() == pytest.approx(dict.fromkeys(TYPES, 1 / 3))


HIGH, MIDDLE, LOW = (sorted(MACS.values())[index] for index in (2, 1, 0))


@pytest.mark.parametrize(("keys", "sentence"), [
    ({"groups": None, "capacity": [LOW] * 3 + [HIGH - 1] * 3}, "no device affords type cnn_small: it takes"),
    ({"groups": None, "capacity": [LOW] * 3 + [HIGH] * 3}, "has no device: whoever affords it affords a larger type"),
    ({"groups": [2, 2]}, "moss.groups has 2 entries for 3 types"),
    ({"groups": [0, 3, 3]}, f"moss.groups gives {TYPES[0]} 0 devices; leave the type out"),
    ({"groups": [2, 2, 1]}, "adds up to 5; .* the 6 clients"),
    ({"groups": None, "ranges": ["1-2", "2-4", "5-6"]}, "gives a client two types: 2-4 overlaps"),
    ({"groups": None, "ranges": ["1-2", "3-4", "6-6"]}, "leaves out client 5"),
    ({"groups": None, "ranges": ["1-2", "3-4", "5-7"]}, "has '5-7'; write positions of clients, as 1-100, among the 6"),
    ({"groups": None, "ranges": ["1-2", "3-4", "x"]}, "has 'x'; write positions of clients"),
    ({"ranges": ["1-2", "3-4", "5-6"]}, "moss.groups and moss.ranges are both given"),
    ({"types": [], "groups": None}, r"a job of method moss lacks moss.types \(the types' models, as in"),
    ({"types": [CNN, CNN, MLP]}, "moss.types has 'cnn_small' twice"),
    ({"types": [CNN, MLP, "lenet_6"]}, "no model 'lenet_6'; did you mean 'lenet_6k'"),
    ({"taps": ["conv1", "default"]}, "moss.taps has 2 entries for 3 types"),
    ({"taps": ["conv1+conv3", "default", "default"]}, "^moss.taps for cnn_small: the network has no module 'conv3'"),
    ({"proxy_taps": "conv1+conv1"}, "^moss.proxy_taps for cnn_small: taps must be different modules"),
    ({"proxy_taps": "conv1+conv3", "wire": "ce"}, "^moss.proxy_taps for cnn_small: the network has no module 'conv3'"),
    ({"epochs": 0}, "moss.epochs is 0; it must be at least 1"),
    ({"lr": 0.0}, "moss.lr is 0.0; it must be above 0"),
    ({"beta": -1.0}, "moss.beta is -1.0; it must be at least 0"),
    ({"momentum": 1.0}, "moss.momentum is 1.0"),
    ({"wire": "loc", "ce_target": "teacher", "meta_update": "joint"}, "moss.meta_update joint has no cross-entropy"),
    ({"proxy": False, "proxies": "persistent"}, "moss.proxies is persistent, but moss.proxy is off"),
    ({"cls": WithOtherData, "ce_target": "labels"}, "moss.ce_target is labels and the public data are 6 samples"),
])  # fmt: skip
def test_bad_input_is_one_sentence(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        moss(**keys)
    assert "\n" not in str(error.value)


def test_all_that_a_job_lacks_is_one_sentence() -> None:
    types, public = (
        r"moss\.types \(the types' models, as in .*\)",
        r"public_samples \(how many the server learns from\)",
    )
    with pytest.raises(UserError, match=f"^a job of method moss lacks {types} and {public}$"):
        moss(types=[], groups=None, public_samples=0)
    bare = {"types": ["torchvision_resnet18", CNN, "torchvision_resnet34"], "model": "torchvision_resnet34"}
    taps = [rf"moss\.{key} for torchvision_{name} \(modules whose outputs are compared\)"
            for key, name in (("taps", "resnet18"), ("taps", "resnet34"), ("proxy_taps", "resnet34"))]  # fmt: skip
    with pytest.raises(UserError, match=f"^a job of method moss lacks {public}, {', '.join(taps[:2])} and {taps[2]}$"):
        moss(**bare, public_samples=0)
    with pytest.raises(UserError, match=f"^a job of method moss lacks {' and '.join(taps[:2])}$"):
        moss(**bare, proxy_taps="layer1")
    with pytest.raises(UserError, match=f"^a job of method moss lacks {taps[0]}$"):
        moss(**bare, proxy_taps="layer1", same_arch_transfer="copy")
    with pytest.raises(UserError, match=f"^a job of method moss lacks {public}$"):
        moss(**bare, wire="ce", public_samples=0)


def test_by_default_every_type_is_transferred() -> None:
    aggregator = moss()
    assert aggregator.params.same_arch_transfer == "wire"  # Algorithm 1, line 13
    assert equal(aggregator.pool[CNN].state, aggregator.server.proxy)  # it begins where the proxies do
    before = pool_states(aggregator)
    internals = play(aggregator, 1)
    assert all(not equal(before[key], aggregator.pool[key].state) for key in TYPES)
    assert not equal(aggregator.pool[CNN].state, aggregator.server.proxy)
    assert set(internals["fidelity"]) == set(TYPES) and all(0 <= each < 1 for each in internals["fidelity"].values())
    assert set(internals["transfers"]) == {f"{way}.{key}" for way in ("forward", "backward") for key in TYPES}


def test_a_round_moves_every_type_and_tells_fidelities() -> None:
    aggregator = moss(same_arch_transfer="copy")
    assert equal(aggregator.pool[CNN].state, aggregator.server.proxy)  # it begins where the proxies do
    before = pool_states(aggregator)
    internals = play(aggregator, 1)
    assert all(not equal(before[key], aggregator.pool[key].state) for key in TYPES)
    assert equal(aggregator.pool[CNN].state, aggregator.server.proxy)
    assert internals["diverged"] == [] and not any("diverged" in message for message in notices(aggregator))
    assert internals["fidelity"][CNN] == 1 and all(0 <= internals["fidelity"][key] <= 1 for key in TYPES)
    assert set(internals["transfers"]) == {f"{way}.{key}" for way in ("forward", "backward") for key in (MLP, LENET)}
    other = moss(same_arch_transfer="copy")
    play(other, 1)
    assert all(equal(aggregator.pool[key].state, other.pool[key].state) for key in TYPES)


def test_a_type_without_participants_keeps_its_model() -> None:
    aggregator = moss(same_arch_transfer="copy")
    play(aggregator, 1)
    before = pool_states(aggregator)
    clients = [item.client for item in aggregator.assign(2, np.arange(1, 7)) if item.model != MLP]
    internals = play(aggregator, 2, participants=clients)
    assert set(internals["fidelity"]) == {CNN, LENET}
    assert equal(before[MLP], aggregator.pool[MLP].state) and not equal(before[LENET], aggregator.pool[LENET].state)
    before = pool_states(aggregator)
    internals = play(
        aggregator, 3, participants=[c for c in clients if aggregator.keys[aggregator.type_of[c - 1]] == CNN]
    )
    assert internals["fidelity"] == {CNN: 1.0} and not internals["transfers"]  # a type alone has nobody to learn from
    assert equal(before[LENET], aggregator.pool[LENET].state) and not equal(before[CNN], aggregator.pool[CNN].state)


def test_a_checkpoint_holds_all_that_the_rounds_after_it_need() -> None:
    unbroken, broken = moss(), moss()
    for round in (1, 2):
        play(unbroken, round)
    play(broken, 1)
    tensors, data = broken.state()
    tensors = {name: each.clone() for name, each in tensors.items()}
    resumed = moss()
    for key in TYPES:
        resumed.pool.update(key, broken.pool[key].state)
    resumed.load_state(tensors, data)
    play(resumed, 2)
    assert all(equal(unbroken.pool[key].state, resumed.pool[key].state) for key in TYPES)
    assert equal(unbroken.server.proxy, resumed.server.proxy)


@pytest.mark.parametrize("keys", [{}, {"proxy": False}, {"same_arch_transfer": "copy"}], ids=str)
def test_a_round_whose_transfers_diverge_installs_the_types_means_and_says_so(keys: dict[str, Any]) -> None:
    aggregator = moss(lr=1e30, **keys)
    updates = updates_for(aggregator, aggregator.assign(1, np.arange(1, 7)))
    means = means_of(aggregator, 1, updates)
    internals = play(aggregator, 1)
    tried = [name for name in aggregator.server.wires if keys or name.startswith("forward")]
    assert (
        sorted(internals["diverged"]) == sorted(tried) and not internals["transfers"]
    )  # without a proxy nobody is taught
    assert set(internals["fidelity"]) == ({CNN} if "same_arch_transfer" in keys else set())
    for key in TYPES:
        assert equal(aggregator.pool[key].state, means[key])
    assert all(torch.isfinite(each).all() for each in aggregator.state()[0].values())
    (notice,) = [message for message in notices(aggregator) if "diverged" in message]
    assert f"round 1: {len(tried)} of the server's transfers diverged" in notice
    assert all(name in notice for name in tried)


@pytest.mark.parametrize("keys", [
    {"proxy": False}, {"same_arch_transfer": "copy"}, {"aggregation": "fedavg"}, {"ce_target": "teacher"},
    {"wire": "ce", "persistent": False}, {"meta_update": "joint", "meta_layers": 2}, {"taps": ["conv2"] * 3},
    {"cls": WithOtherData}, {"model": "lenet_6k"}, {"pair_reduce": "mean"}, {"projection_start": "least_squares"},
])  # fmt: skip
def test_switches_change_what_becomes_of_the_types(keys: dict[str, Any]) -> None:
    if "taps" in keys:
        keys = {"taps": ["conv2", "block3", "conv1"]}
    plain, other = moss(), moss(**keys)
    play(plain, 1)
    internals = play(other, 1)
    assert not equal(plain.pool[LENET].state, other.pool[LENET].state)
    if not keys.get("proxy", True):
        assert len(internals["transfers"]) == 9 and f"{LENET}.{MLP}" in internals["fidelity"]


def test_fedavg_weighs_types_by_their_participants_samples() -> None:
    aggregator = moss(aggregation="fedavg")
    updates = updates_for(aggregator, aggregator.assign(1, np.arange(1, 7)))
    aggregator.aggregate(1, updates, means_of(aggregator, 1, updates))
    types = [aggregator.keys[index] for index in aggregator.type_of]
    assert aggregator._samples == {key: sum(10 * (c + 1) for c in range(6) if types[c] == key) for key in TYPES}
    assert all(torch.isfinite(each).all() for each in aggregator.pool[CNN].state.values())


@pytest.mark.parametrize(
    ("keys", "number"), [({}, 6), ({"proxy": False}, 9), ({"same_arch_transfer": "copy"}, 4)], ids=str
)
def test_people_see_how_far_the_server_is(keys: dict[str, Any], number: int) -> None:
    aggregator = moss(**keys)
    play(aggregator, 2)
    progress = [event for event in aggregator.events if event["event"] == "progress"]
    assert {(event["round"], event["passing"]) for event in progress} == {(2, True)}
    steps = list(dict.fromkeys(event["what"] for event in progress))
    assert steps == [f"server: {done} of {number} transfers done" for done in range(number + 1)]
