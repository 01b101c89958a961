"""What HeteroFL, FedRolex and FjORD share: who trains which level, and whole jobs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from job_results import assert_equal, result

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.method_params import make_params
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.submodel.capacity_levels import check_shares, drawn_levels
from fedscale_ext.methods.submodel.heterofl import HeteroFLAggregator
from fedscale_ext.submodels import narrowed
from methods.harness import SHAPE, server

NAMES = ("heterofl", "fedrolex", "fjord")
SPEC = models.named_spec("nasbench201_base", SHAPE, 5)


def macs(aggregator: Any) -> list[int]:
    return [aggregator.pool[key].cost.forward_macs for key in aggregator.keys]


def run(job_file: Path, name: str, **keys: Any) -> dict[str, Any]:
    fedscale_ext.run(job_file, job_name=name, **keys)
    return result(job_file.parent / "logs" / name / "logs")


@pytest.mark.parametrize("name", NAMES)
def test_each_client_is_on_the_widest_level_that_it_affords(name: str) -> None:
    costs = macs(server(method_class(name), name))
    assert costs == sorted(costs, reverse=True) and costs[0] == models.cost(SPEC).forward_macs
    capacity = [costs[0], costs[0] - 1, costs[2], costs[2] + 1, costs[4], costs[4] - 1]
    aggregator = server(method_class(name), name, capacity=capacity)
    items = aggregator.assign(1, np.arange(1, 7))
    assert [item.model for item in items] == ["a", "b", "c", "c", "e", "e"]
    assert list(aggregator.evaluation_plan().serve) == [item.model for item in items]
    assert aggregator.evaluation_plan().named == {"global": "a"}
    sizes = {key: aggregator.pool[key].cost.parameters for key in aggregator.keys}
    a, b, c, _, e = (
        f"level {key} (rate {aggregator.rates[index]:g}, {sizes[key]:,} parameters, {costs[index]:,} MACs per sample)"
        for index, key in enumerate(aggregator.keys)
    )
    assert [event["message"] for event in aggregator.events] == [
        f"1 of 6 clients affords less than the {costs[4]:,} MACs per sample of the smallest model; "
        "they would train level e all the same: 6",
        f"{name} gives 1 of 6 clients {a}, 1 {b}, 2 {c}, 2 {e}",
    ]


def test_a_crowd_of_small_clients_is_counted() -> None:
    aggregator = server(HeteroFLAggregator, "heterofl", clients=30, capacity=[1.0] * 29 + [1e15])
    event, assigned = aggregator.events
    assert "gives 1 of 30 clients level a" in assigned["message"] and "29 level e" in assigned["message"]
    assert event["message"].startswith("29 of 30 clients afford less") and event["message"].endswith("20 and 9 more")
    assert [item.model for item in aggregator.assign(1, np.array([1, 30]))] == ["e", "a"]


@pytest.mark.parametrize("name", NAMES)
def test_channels_that_nobody_trains_are_told(name: str) -> None:
    costs = macs(server(method_class(name), name))
    aggregator = server(method_class(name), name, capacity=[costs[2]] * 5 + [costs[4]])
    gives, unaffordable, *notices = [event["message"] for event in aggregator.events]
    assert f"{name} gives 5 of 6 clients level c (rate {aggregator.rates[2]:g}, " in gives
    assert unaffordable == (
        f"no client affords level a, the largest: it takes {costs[0]:,} MACs per sample, and the strongest client "
        f"affords {costs[2]:,}"
    )
    assert [message[:33] for message in notices] == (
        [] if name == "fedrolex" else ["no client is on level a or b: cha"]
    )
    assert len(server(method_class(name), name, capacity=[costs[0]] + [costs[4]] * 5).events) == 1


def test_without_a_level_of_rate_1_the_whole_is_a_model_that_nobody_trains() -> None:
    aggregator = server(HeteroFLAggregator, "heterofl", rates=[0.5, 0.25])
    assert [model.key for model in aggregator.pool] == ["global", "a", "b"]
    assert aggregator.evaluation_plan().named == {"global": "global"}
    assert {item.model for item in aggregator.assign(1, np.arange(1, 7))} == {"a"}


def test_levels_are_drawn_once_or_in_each_round_among_those_that_are_affordable() -> None:
    costs = macs(server(HeteroFLAggregator, "heterofl"))
    capacity = [1e15] * 300 + [costs[2]] * 100
    everyone = np.arange(1, 401)

    def rounds(**keys: Any) -> list[list[str]]:
        aggregator = server(HeteroFLAggregator, "heterofl", clients=400, capacity=capacity, **keys)
        return [[item.model for item in aggregator.assign(number, everyone)] for number in (1, 2, 1)]

    one, two, again = rounds(levels="fix")
    assert one == two == again and set(one[:300]) == set("abcde") and set(one[300:]) == set("cde")
    one, two, again = rounds(levels="dynamic")
    assert one == again != two and set(two[:300]) == set("abcde") and set(two[300:]) == set("cde")
    one, _, _ = rounds(levels="fix", shares=[0.7, 0, 0, 0, 0.3])
    assert set(one[:300]) == {"a", "e"} and 180 < one[:300].count("a") < 240 and set(one[300:]) == {"e"}
    one, _, _ = rounds(levels="fix", shares=[1, 0, 0, 0, 0])
    assert one == ["a"] * 300 + ["c"] * 100
    aggregator = server(HeteroFLAggregator, "heterofl", clients=400, capacity=capacity, levels="dynamic")
    assert list(aggregator.evaluation_plan().serve) == ["a"] * 300 + ["c"] * 100
    aggregator = server(HeteroFLAggregator, "heterofl", clients=400, capacity=capacity, levels="fix")
    assert list(aggregator.evaluation_plan().serve) == [item.model for item in aggregator.assign(1, everyone)]
    assert server(HeteroFLAggregator, "heterofl", levels="fix", seed=1).level_of.tolist() == [
        server(HeteroFLAggregator, "heterofl", levels="fix", seed=1).keys.index(item.model)
        for item in server(HeteroFLAggregator, "heterofl", levels="fix", seed=1).assign(9, np.arange(1, 7))
    ]


def test_a_level_without_a_share_is_never_drawn_however_u_falls() -> None:
    affordable = np.ones((4, 3), dtype=bool)
    u = np.array([0.0, 0.3, 1 - 2**-53, np.nextafter(0.1 / 0.3, 0)])
    assert drawn_levels(affordable, [0.0, 0.1, 0.0], u).tolist() == [1, 1, 1, 1]
    assert drawn_levels(affordable, [1.0, 1.0, 1.0], np.array([0.0, 0.34, 0.99, 0.5])).tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"rates": [0.5, 1.0]}, "the rates must fall"),
        ({"rates": []}, "1 to 26 rates"),
        ({"rates": [0.5, 0.5]}, "must differ in their first six significant digits"),
        ({"rates": [0.5000001, 0.5]}, "its values must differ in their first six significant digits"),
        ({"rates": [1.5, 0.5]}, "above 0 and at most 1"),
        ({"rates": [1.0, 0.0]}, "above 0 and at most 1"),
        ({"rates": [1.0, float("nan")]}, r"(rates|p) is \[.*nan.*\]; every rate must be above 0"),
        ({"shares": [1.0]}, "a share, not negative, for each of 5 rates"),
        ({"shares": [1, 1, 1, 1, -1]}, "a share, not negative"),
        ({"shares": [0.5, 0.3, 0.3, 0, 0]}, "add up to 1, and these add up to 1.1"),
        ({"shares": [0.2] * 5}, "shares is given and .*levels is capacity, which draws nothing; set .* to fix"),
        ({"clip_norm": 0}, "clip_norm is 0.0; it must be above 0"),
    ],
)
def test_bad_hyperparameters_are_one_sentence(keys: dict[str, Any], sentence: str) -> None:
    for name in ("heterofl", "fedrolex"):
        with pytest.raises(UserError, match=sentence) as raised:
            server(method_class(name), name, **keys)
        assert str(raised.value).startswith(f"{name}.")
    if "shares" in keys:
        with pytest.raises(UserError, match=sentence):
            server(method_class("fjord"), "fjord", **keys)
    if "rates" in keys and "fall" not in sentence:
        with pytest.raises(UserError, match=sentence):
            server(method_class("fjord"), "fjord", p=keys["rates"])


def test_shares_may_be_rounded() -> None:
    check_shares("x.shares", [0.33, 0.33, 0.33], 3)
    with pytest.raises(UserError, match=r"shares must add up to 1, and these add up to 0.98"):
        check_shares("x.shares", [0.33, 0.33, 0.32], 3)


PLAIN: dict[str, dict[str, Any]] = {
    "heterofl": {"heterofl.mask": False, "heterofl.clip_norm": None, "heterofl.weighted": True},
    "fedrolex": {"fedrolex.clip_norm": None, "fedrolex.weighted": True},
    "fjord": {"fjord.p": [1.0]},
}


@pytest.fixture(scope="module")
def plain(session_job_file: Path) -> dict[str, Any]:
    """FedAvg's job where every client affords the model."""
    keys = {"bn_statistics": "federated", "capacity_model": "nasbench201_base"}
    return run(session_job_file, "plain_levels", method="fedavg", **keys)


@pytest.mark.parametrize("name", NAMES)
def test_where_everybody_affords_everything_and_nothing_is_special_it_is_fedavg(
    job_file: Path, plain: dict[str, Any], name: str
) -> None:
    result = run(job_file, name, method=name, capacity_model="nasbench201_base", **PLAIN[name])
    spec, state = plain["models"]["global"]
    other_spec, other = result["models"]["a"]
    assert spec == other_spec
    for mine in models.parameter_names(spec):
        assert torch.equal(state[mine], other[mine]), mine
    for one, two in zip(plain["rounds"], result["rounds"], strict=True):
        assert one["train_loss"] == two["train_loss"] and one["training_macs"] == two["training_macs"]


@pytest.mark.parametrize(
    ("name", "more"), [("heterofl", {"heterofl.levels": "dynamic"}), ("fedrolex", {}), ("fjord", {})]
)
def test_a_resumed_job_equals_an_unbroken_one(job_file: Path, name: str, more: dict[str, Any]) -> None:
    keys = {"method": name, "num_participants": 7, "local_steps": 1, "rounds": 3, **more}
    unbroken = run(job_file, "job", **keys)  # tests in each of its rounds
    assert_equal(unbroken, run(job_file, "job", **keys, resume_from=1))
    assert len({key for entry in unbroken["rounds"] for key in entry["assignments"]}) > 2


def test_the_weakest_device_affords_the_narrowest_level_or_the_model_that_is_named(job_file: Path) -> None:
    keys = {"method": "heterofl", "num_participants": 7, "rounds": 1, "capacity_rule": "computation"}
    least = run(job_file, "least", **keys)
    assert "e" in least["rounds"][0]["assignments"]
    named = run(job_file, "named", **keys, capacity_model="nasbench201_base")
    assert named["rounds"][0]["assignments"] == {"a": 7}


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({}, "bn_statistics: auto tells of clients' data .*; set bn_statistics: running"),
        ({"bn_statistics": "running"}, "count for their own classes only"),
        ({"bn_statistics": "running", "heterofl.mask": False, "capacity_model": "cnn_small"}, None),
        ({"bn_statistics": "running", "heterofl.mask": False}, "trains parts of models"),
    ],
)
def test_what_noise_does_not_shield_is_refused(job_file: Path, keys: dict[str, Any], sentence: str | None) -> None:
    job = {
        "method": "heterofl",
        "model": "cnn_small",
        "rounds": 1,
        "dp_noise_multiplier": 1.0,
        "dp_delta": 0.01,
        **keys,
    }
    if sentence is None:  # everybody holds the whole model
        fedscale_ext.run(job_file, **job)
        return
    with pytest.raises(UserError, match=sentence):
        fedscale_ext.run(job_file, **job)


@pytest.mark.parametrize(("name", "keys", "rate"), [
    ("heterofl", {}, 0.0625), ("fjord", {}, 0.2), ("splitmix", {}, 0.125), ("fluid", {}, 0.5),
    ("heterofl", {"rates": [1, 0.5]}, 0.5), ("fjord", {"p": [1, 0.5]}, 0.5), ("splitmix", {"r": 0.5}, 0.5),
    ("fluid", {"p": [0.9, 0.25]}, 0.25),
])  # fmt: skip
def test_the_weakest_device_affords_the_narrowest_version(name: str, keys: dict[str, Any], rate: float) -> None:
    aggregator = server(method_class(name), name, **keys)
    assert aggregator.smallest_spec() == narrowed(aggregator.initial_spec(), rate)


@pytest.mark.parametrize("name", ["heterofl", "fedrolex", "fjord", "splitmix", "fluid"])
def test_a_family_that_cannot_be_narrowed_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="family 'torchvision' cannot be made narrower"):
        server(method_class(name), name, model="torchvision_resnet18", shape=(1, 16, 16))


def test_unless_capacity_model_names_another() -> None:
    aggregator = server(method_class("splitmix"), "splitmix", capacity_model="cnn_small")
    assert aggregator.smallest_spec() == models.named_spec(
        "cnn_small", aggregator.task.input_shape, aggregator.task.num_classes
    )


WITH_LEVELS = ("heterofl", "fedrolex", "fjord", "depthfl", "scalefl", "hypemefed")


@pytest.mark.parametrize("name", WITH_LEVELS)
def test_groups_make_the_levels_where_there_are_some(name: str) -> None:
    def levels(**keys: Any) -> str:
        config = make_config({}, {"method": name, **{f"{name}.{key}": value for key, value in keys.items()}})
        return make_params(method_class(name).Params, config).levels

    assert levels() == levels(groups=[]) == "capacity"
    assert levels(groups=[3, 3, 4]) == "groups"
    with pytest.raises(UserError, match=rf"{name}.groups is given and {name}.levels is fix"):
        levels(groups=[3, 3, 4], levels="fix")


def test_shares_beside_groups_are_refused_with_what_to_do() -> None:
    keys = {"method": "fjord", "fjord.groups": [2, 2, 2, 2, 2], "fjord.shares": [0.2] * 5}
    with pytest.raises(UserError, match=r"which draws nothing; remove fjord\.shares$"):
        make_params(method_class("fjord").Params, make_config({}, keys))
