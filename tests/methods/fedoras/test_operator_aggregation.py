"""OPA: who counts for which operator, and how much."""

from functools import cache
from typing import Any

import pytest
import torch

from fedscale_ext import models
from fedscale_ext.core.types import State
from fedscale_ext.methods.fedoras.operator_aggregation import OperatorMeans, operator_of
from fedscale_ext.models.supernet.family import restricted
from fedscale_ext.submodels import count_mean
from methods.harness import equal, trained

SPEC = models.named_spec("cnn_tiny", (1, 20, 20), 5)
START = models.initial_state(SPEC, 1)
PARAMETERS = models.parameter_names(SPEC)
A, B = "layers.0.conv1.conv.weight", "layers.0.conv1.bn.running_mean"  # one operator's weight and buffer
FIXED = "classifier.weight"


def means(aggregation: Any = "opa", min_clients: int = 2, **more: Any) -> OperatorMeans:
    return OperatorMeans(START, aggregation, min_clients, **more)


@cache
def client(number: int) -> State:
    return trained(START, number)


def mixed(name: str, *weights: float) -> torch.Tensor:
    """The mean of clients 1, 2, … with these weights."""
    total = sum(w * client(number)[name].double() for number, w in enumerate(weights, start=1))
    return (total / sum(weights)).float()


def test_every_parameter_and_buffer_of_a_layer_belongs_to_an_operator() -> None:
    """The public code's map holds buffers alone."""
    mapped = {name: operator_of(name) for name in START}
    for name, operator in mapped.items():
        assert (operator is None) == name.startswith(("stem.", "reductions.", "classifier."))
        assert operator is None or (operator[1] in SPEC["ops"][operator[0]] and f".{operator[1]}." in name)
    assert {name for name in PARAMETERS if mapped[name]} and {n for n in START if n not in PARAMETERS and mapped[n]}
    assert {op for op in mapped.values() if op} == {
        (layer, name) for layer, row in enumerate(SPEC["ops"]) for name in row if name != "identity"
    }


def test_operators_are_weighted_by_the_examples_that_went_through_them() -> None:
    operator_means = means()
    for number, examples in ((1, 30), (2, 10), (3, 0)):
        operator_means.add(client(number), {(0, "conv1"): examples, (0, "identity"): 5}, trained=100 * number)
    new = operator_means.result()
    for name in (A, B):
        assert torch.equal(new[name], mixed(name, 30, 10))
    assert torch.equal(new[FIXED], mixed(FIXED, 100, 200, 300))
    assert torch.equal(new["stem.bn.running_var"], mixed("stem.bn.running_var", 1, 2, 3))
    assert new["layers.0.conv1.bn.num_batches_tracked"] == START["layers.0.conv1.bn.num_batches_tracked"] + 2
    for name in START.keys() - {n for n in START if operator_of(n) in (None, (0, "conv1"))}:
        assert torch.equal(new[name], START[name])


@pytest.mark.parametrize("aggregation", ["opa", "fedavg", "plain"])
def test_an_operator_of_one_client_stays_and_what_all_share_does_not(aggregation: Any) -> None:
    for least, moved in ((2, False), (1, True)):
        operator_means = means(aggregation, least)
        operator_means.add(client(1), {(0, "conv1"): 30}, trained=30)
        new = operator_means.result()
        assert torch.equal(new[A], client(1)[A] if moved else START[A])
        assert torch.equal(new[FIXED], client(1)[FIXED])


def test_an_operator_that_is_always_chosen_is_averaged_as_by_fedavg() -> None:
    operator_means = means()
    for number in (1, 2, 3):
        every = {operator_of(name): 10 * number for name in START if operator_of(name)}
        operator_means.add(client(number), every, trained=10 * number)
    assert equal(operator_means.result(), count_mean(START, [(client(n), None, 10.0 * n) for n in (1, 2, 3)]))


WITHOUT = {
    name: client(4)[name]
    for name in models.layout(restricted(SPEC, [tuple(op for op in row if op != "conv1") for row in SPEC["ops"]]))
}  # a client that was not sent the operator


def with_stale(name: str, *weights: float, stale: float) -> torch.Tensor:
    """The mean of clients 1, 2, … and of the weights of the round's start."""
    total = sum(w * client(number)[name].double() for number, w in enumerate(weights, start=1))
    return ((total + stale * START[name].double()) / (sum(weights) + stale)).float()


@pytest.mark.parametrize(
    ("aggregation", "weights", "other"), [("fedavg", (100, 200, 300), 400), ("plain", (1, 1, 1), 1)]
)
@pytest.mark.parametrize("over", ["participants", "holders"])
def test_fedavg_and_plain_average_over_participants_or_holders(
    aggregation: Any, weights: tuple[int, ...], other: int, over: Any
) -> None:
    """Section 3.1 (3): FedAvg normalises "collectively for full models", so that unchanged copies count."""
    operator_means = means(aggregation, mean_over=over)
    operator_means.add(WITHOUT, {(0, "identity"): 400}, trained=400)  # its copy counts even where it comes first
    for number, examples in ((1, 30), (2, 10), (3, 0)):
        operator_means.add(client(number), {(0, "conv1"): examples}, trained=100 * number)
    new = operator_means.result()
    for name in (A, B):
        expected = mixed(name, *weights) if over == "holders" else with_stale(name, *weights, stale=other)
        assert torch.equal(new[name], expected)
    assert torch.equal(new[FIXED], mixed(FIXED, *weights, other))


def test_opa_leaves_out_clients_that_were_not_sent_an_operator() -> None:
    operator_means = means()
    operator_means.add(WITHOUT, {(0, "identity"): 400}, trained=400)
    for number, examples in ((1, 30), (2, 10)):
        operator_means.add(client(number), {(0, "conv1"): examples}, trained=100 * number)
    new = operator_means.result()
    assert torch.equal(new[A], mixed(A, 30, 10)) and torch.equal(new[B], mixed(B, 30, 10))


def test_what_nobody_was_sent_stays_bitwise() -> None:
    operator_means = means("fedavg", 1)
    operator_means.add(WITHOUT, {(0, "identity"): 3}, trained=3)
    operator_means.add(WITHOUT, {(0, "identity"): 7}, trained=7)
    assert torch.equal(operator_means.result()[A], START[A])


@pytest.mark.parametrize("over", ["participants", "holders"])
def test_buffers_only_is_what_the_public_code_does(over: Any) -> None:
    operator_means = means(min_clients=1, parameters=PARAMETERS, mean_over=over)
    for number, examples in ((1, 30), (2, 10), (3, 0)):
        operator_means.add(client(number), {(0, "conv1"): examples}, trained=100 * number)
    operator_means.add(WITHOUT, {(0, "identity"): 400}, trained=400)
    new = operator_means.result()
    weights = (100, 200, 300)
    assert torch.equal(new[A], mixed(A, *weights) if over == "holders" else with_stale(A, *weights, stale=400))
    assert torch.equal(new[B], mixed(B, 30, 10))


def test_a_clients_own_subspace_is_enough() -> None:
    ops = [tuple(row[:2]) for row in SPEC["ops"]]
    held = {name: client(2)[name] for name in models.layout(restricted(SPEC, ops))}
    operator_means = means()
    operator_means.add(client(1), {(0, "conv1"): 10, (0, "mbconv3"): 10}, trained=20)
    operator_means.add(held, {(0, "conv1"): 10}, trained=20)
    new = operator_means.result()
    assert torch.equal(new[A], mixed(A, 1, 1))
    assert torch.equal(new["layers.0.mbconv3.expand.conv.weight"], START["layers.0.mbconv3.expand.conv.weight"])
