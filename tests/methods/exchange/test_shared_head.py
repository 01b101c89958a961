"""LG-FedAvg and FedGH: one head for bodies of any architecture, averaged or trained by the server."""

from pathlib import Path

import numpy as np
import pytest
import torch
from client_settings import client_settings

from fedscale_ext import models
from fedscale_ext.core.streams import torch_stream
from fedscale_ext.methods.exchange.client import COUNTS
from fedscale_ext.methods.exchange.fedgh import FedGHClient
from fedscale_ext.methods.exchange.lgfedavg import LGFedAvgClient
from fedscale_ext.methods.exchange.prototypes import PROTOTYPES
from fedscale_ext.methods.personal.personal_models import floating_tensors
from fedscale_ext.models.families.headed import headed
from methods.exchange.exchange_harness import (
    TYPES,
    WIDTH,
    answer,
    assert_cohorts_equal_one_by_one,
    bench,
    new_aggregator,
    play,
    samples,
)
from methods.harness import CLASSES, SHAPE

SPEC = headed(models.named_spec("cnn_small", SHAPE, CLASSES), WIDTH)
HEAD = {
    "weight": torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(4)),
    "bias": torch.randn(CLASSES, generator=torch.Generator().manual_seed(5)),
}
METHODS = {"lgfedavg": LGFedAvgClient, "fedgh": FedGHClient}


@pytest.mark.parametrize("method", METHODS)
def test_types_begin_with_one_head_which_is_the_message(method: str, tmp_path: Path) -> None:
    aggregator = new_aggregator(method, tmp_path)
    for key in TYPES:
        assert torch.equal(aggregator.pool[key].state["head.weight"], aggregator.message()["weight"])
    (item,) = aggregator.assign(1, np.array([1]))
    assert aggregator.download_bytes(item) == 4 * CLASSES * (WIDTH + 1)


def test_heads_are_averaged_by_samples(tmp_path: Path) -> None:
    aggregator = new_aggregator("lgfedavg", tmp_path)
    (item, other) = play(aggregator, 1, [2, 5])  # of 20 and 50 samples
    one, two = answer(aggregator, item, 1), answer(aggregator, other, 1)
    for name in ("weight", "bias"):
        expected = (20 * one[name].numpy() + 50 * two[name].numpy()) / 70
        np.testing.assert_allclose(aggregator.message()[name].numpy(), expected, rtol=1e-5)
    assert aggregator.upload_bytes(item) == 4 * CLASSES * (WIDTH + 1)
    assert item.compute_fraction == 1.0  # it sends nothing that takes a pass over samples


def test_the_server_steps_along_the_cross_entropy_of_each_prototype(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedgh", tmp_path, epochs=2, batch_size=1, lr=0.3)
    weight, bias = (aggregator.head[name].numpy().astype(np.float64) for name in ("weight", "bias"))
    items = play(aggregator, 3, [1, 2, 4])
    rows, labels = [], []
    for item in items:
        sent = answer(aggregator, item, 3)
        for label in np.flatnonzero(sent[COUNTS].numpy()):
            rows.append(sent[PROTOTYPES][label].numpy().astype(np.float64))
            labels.append(label)
    generator = torch_stream(aggregator.seed, 3, "head")
    for _ in range(2):
        for index in torch.randperm(len(rows), generator=generator).tolist():
            logits = weight @ rows[index] + bias
            error = np.exp(logits - logits.max())
            error /= error.sum()
            error[labels[index]] -= 1
            weight, bias = weight - 0.3 * np.outer(error, rows[index]), bias - 0.3 * error
    assert len(rows) == 6
    np.testing.assert_allclose(aggregator.message()["weight"].numpy(), weight, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(aggregator.message()["bias"].numpy(), bias, rtol=1e-4, atol=1e-6)


def test_a_head_that_diverges_stays_as_it_was(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedgh", tmp_path, lr=1e38)
    before = {name: tensor.clone() for name, tensor in aggregator.head.items()}
    play(aggregator, 1)
    assert all(torch.equal(aggregator.head[name], tensor) for name, tensor in before.items())
    assert any("the head is as before; lower fedgh.lr" in event["message"] for event in aggregator.events)


@pytest.mark.parametrize("method", METHODS)
def test_a_checkpoint_holds_the_head(method: str, tmp_path: Path) -> None:
    aggregator, resumed = new_aggregator(method, tmp_path / "a"), new_aggregator(method, tmp_path / "b")
    play(aggregator, 1)
    resumed.load_state(*aggregator.state())
    assert aggregator.shared.sections([]) == resumed.shared.sections([])
    assert not torch.equal(aggregator.head["weight"], new_aggregator(method, tmp_path / "c").head["weight"])


@pytest.mark.parametrize("method", METHODS)
def test_a_client_has_its_own_body_and_the_servers_head(method: str) -> None:
    at, client_state = bench(SPEC), floating_tensors(bench(SPEC, 9).module().state_dict())
    conf = client_settings(model_key="a", client_state=client_state, shared_tensors=HEAD)
    model = at.module()
    METHODS[method](conf, at).load_personal_model(model, conf)
    state = model.state_dict()
    for name, tensor in client_state.items():
        expected = HEAD[name.removeprefix("head.")].double() if name.startswith("head.") else tensor
        assert torch.equal(state[name], expected), name


def test_a_client_of_lgfedavg_sends_its_trained_head() -> None:
    at, data = bench(SPEC), samples(9)
    conf = client_settings(model_key="a", client_state={}, shared_tensors=HEAD, returns_tensors=True)
    result = LGFedAvgClient(conf, at).train(data, at.module(), conf)
    for name in HEAD:
        assert torch.equal(result["returned"][name], result["client_state"][f"head.{name}"])
        assert not torch.allclose(result["returned"][name], HEAD[name].double())


@pytest.mark.parametrize("method", METHODS)
def test_clients_side_by_side_learn_what_they_learn_one_by_one(method: str) -> None:
    states = [{}, floating_tensors(bench(SPEC, 9).module().state_dict())]
    assert_cohorts_equal_one_by_one(METHODS[method], SPEC, states, HEAD)
