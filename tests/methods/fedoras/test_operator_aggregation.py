"""OPA: who counts for which operator, and how much."""

from functools import cache
from typing import Any

import pytest
import torch

from fedscale_ext import models
from fedscale_ext.methods.fedoras.operator_aggregation import OperatorMeans, operator_of
from fedscale_ext.models.supernet import restricted
from fedscale_ext.runtime.work import State
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
    total = sum(w * client(place)[name].double() for place, w in enumerate(weights, start=1))
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
    made = means()
    for number, examples in ((1, 30), (2, 10), (3, 0)):
        made.add(client(number), {(0, "conv1"): examples, (0, "identity"): 5}, trained=100 * number)
    new = made.result()
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
        made = means(aggregation, least)
        made.add(client(1), {(0, "conv1"): 30}, trained=30)
        new = made.result()
        assert torch.equal(new[A], client(1)[A] if moved else START[A])
        assert torch.equal(new[FIXED], client(1)[FIXED])


def test_an_operator_that_is_always_chosen_is_averaged_as_by_fedavg() -> None:
    made = means()
    for number in (1, 2, 3):
        every = {operator_of(name): 10 * number for name in START if operator_of(name)}
        made.add(client(number), every, trained=10 * number)
    assert equal(made.result(), count_mean(START, [(client(n), None, 10.0 * n) for n in (1, 2, 3)]))


def test_fedavg_and_plain_average_what_clients_hold_whether_they_trained_it_or_not() -> None:
    ops = [tuple(name for name in row if name != "conv1") for row in SPEC["ops"]]
    without = {name: client(4)[name] for name in models.layout(restricted(SPEC, ops))}
    for aggregation, weights in (("fedavg", (100, 200, 300)), ("plain", (1, 1, 1))):
        made = means(aggregation)
        for number, examples in ((1, 30), (2, 10), (3, 0)):
            made.add(client(number), {(0, "conv1"): examples}, trained=100 * number)
        made.add(without, {(0, "identity"): 400}, trained=400)
        new = made.result()
        for name in (A, B):
            assert torch.equal(new[name], mixed(name, *weights))
        fixed = (*weights, 400 if aggregation == "fedavg" else 1)
        assert torch.equal(new[FIXED], mixed(FIXED, *fixed))


def test_buffers_only_is_what_the_public_code_does() -> None:
    made = means(min_clients=1, parameters=PARAMETERS)
    for number, examples in ((1, 30), (2, 10), (3, 0)):
        made.add(client(number), {(0, "conv1"): examples}, trained=100 * number)
    new = made.result()
    assert torch.equal(new[A], mixed(A, 100, 200, 300))
    assert torch.equal(new[B], mixed(B, 30, 10))


def test_a_clients_own_subspace_is_enough() -> None:
    ops = [tuple(row[:2]) for row in SPEC["ops"]]
    held = {name: client(2)[name] for name in models.layout(restricted(SPEC, ops))}
    made = means()
    made.add(client(1), {(0, "conv1"): 10, (0, "mbconv3"): 10}, trained=20)
    made.add(held, {(0, "conv1"): 10}, trained=20)
    new = made.result()
    assert torch.equal(new[A], mixed(A, 1, 1))
    assert torch.equal(new["layers.0.mbconv3.expand.conv.weight"], START["layers.0.mbconv3.expand.conv.weight"])
