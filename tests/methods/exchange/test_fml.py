"""FML: the losses of a pair, what a client keeps, the mean of the shared model, and what counts as traffic."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from client_settings import client_settings

from fedscale_ext import models
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.exchange.fml import FMLClient
from fedscale_ext.methods.exchange.mutual import personal_part
from fedscale_ext.models.families.network_pair import pair_spec
from methods.exchange.exchange_harness import (
    TYPES,
    aggregator_of_types,
    assert_cohorts_equal_one_by_one,
    bench,
    samples,
)
from methods.harness import CLASSES, SHAPE, means_of, trained_states, updates_for

OWN, MEME = (models.named_spec(name, SHAPE, CLASSES) for name in ("nasbench201_base", "cnn_small"))
PAIRS = [pair_spec(OWN, MEME), pair_spec(models.named_spec("single_exit_mlp", SHAPE, CLASSES), MEME)]


new_aggregator = partial(aggregator_of_types, "fml", model="nasbench201_base")


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def test_the_losses_are_cross_entropy_and_the_divergence_from_the_other() -> None:
    rng = np.random.default_rng(1)
    personal, meme, labels = rng.normal(size=(6, CLASSES)), rng.normal(size=(6, CLASSES)), np.array([0, 1, 2, 3, 4, 0])
    p, q = softmax(personal), softmax(meme)
    rows = np.arange(6)
    mine = 0.3 * -np.log(p[rows, labels]) + 0.7 * (q * (np.log(q) - np.log(p))).sum(1)
    theirs = 0.8 * -np.log(q[rows, labels]) + 0.2 * (p * (np.log(p) - np.log(q))).sum(1)
    client = FMLClient(client_settings(alpha=0.3, beta=0.8), None)  # type: ignore[arg-type]
    output = torch.from_numpy(np.stack([meme, personal], 1)).requires_grad_()
    losses = client.losses(output, torch.from_numpy(labels))
    np.testing.assert_allclose(losses.detach().numpy(), mine + theirs, rtol=1e-9)
    # a model learns from its own loss alone: the gradient of alpha CE + (1 - alpha) KL is p - alpha y - (1 - alpha) q
    (gradient,) = torch.autograd.grad(losses.sum(), output)
    y = np.eye(CLASSES)[labels]
    np.testing.assert_allclose(gradient[:, 1].numpy(), p - 0.3 * y - 0.7 * q, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(gradient[:, 0].numpy(), q - 0.8 * y - 0.2 * p, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("pair", PAIRS, ids=["batch norm", "an exit"])
def test_clients_side_by_side_learn_what_they_learn_one_by_one(pair: models.ModelSpec) -> None:
    states = [{}, personal_part(bench(pair, 9).module().state_dict())]
    settings = {"alpha": 0.4, "beta": 0.7, "returns_tensors": False}
    assert_cohorts_equal_one_by_one(FMLClient, pair, states, {}, **settings)


def test_a_client_goes_on_from_its_own_model_with_the_shared_one_that_was_sent() -> None:
    at, state = bench(PAIRS[0]), personal_part(bench(PAIRS[0], 9).module().state_dict())
    conf = client_settings(model_key="a", client_state=state)
    model, sent = at.module(), dict(at.module().state_dict())
    client = FMLClient(conf, at)
    client.load_personal_model(model, conf)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state.get(name, sent[name])), name
    result = client.train(samples(9), model, conf)
    assert result["client_state"].keys() == state.keys()
    assert all(torch.equal(result["client_state"][name], model.state_dict()[name]) for name in state)


def test_the_shared_model_is_the_mean_by_samples_over_all_types(tmp_path: Path) -> None:
    aggregator = new_aggregator(tmp_path)
    before = {key: dict(aggregator.pool[key].state) for key in TYPES}
    assert torch.equal(
        before[TYPES[0]]["shared.head.linear.weight"], aggregator.pool["shared"].state["head.linear.weight"]
    )
    items = aggregator.assign(1, np.array([2, 3, 6]))  # of 20, 30 and 60 samples
    updates = updates_for(aggregator, items)
    states = trained_states(aggregator, 1, updates)
    aggregator.aggregate(1, updates, means_of(aggregator, 1, updates))
    for name, tensor in aggregator.pool["shared"].state.items():
        rows = [states[client][f"shared.{name}"].double().numpy() for client in (2, 3, 6)]
        expected = (20 * rows[0] + 30 * rows[1] + 60 * rows[2]) / 110
        np.testing.assert_allclose(tensor.double().numpy(), expected, rtol=1e-5, atol=1e-6)
    for key in TYPES:
        for name, tensor in aggregator.pool[key].state.items():
            begin, _, rest = name.partition(".")
            assert torch.equal(
                tensor, before[key][name] if begin == "own" else aggregator.pool["shared"].state[rest]
            ), name


def test_the_shared_model_travels_and_the_pair_counts_as_work(tmp_path: Path) -> None:
    aggregator = new_aggregator(tmp_path)
    (item,) = aggregator.assign(1, np.array([5]))
    shared = models.cost(aggregator.pool["shared"].spec)
    assert (aggregator.download_bytes(item), aggregator.upload_bytes(item)) == (shared.bytes, shared.bytes)
    personal = models.cost(models.named_spec(TYPES[1], SHAPE, CLASSES))
    assert aggregator.pool[item.model].cost.forward_macs == personal.forward_macs + shared.forward_macs
    assert aggregator.personal_bytes()[4] == aggregator.served_bytes()[4] == personal.bytes
    # the types' own models, and the shared one once
    stored = sum(model.cost.bytes for model in aggregator.pool) - aggregator.repeated_bytes()
    own_bytes = [models.cost(models.named_spec(name, SHAPE, CLASSES)).bytes for name in TYPES]
    assert stored == sum(own_bytes) + shared.bytes


def test_clients_are_tested_on_their_own_models_and_the_shared_one_on_all(tmp_path: Path) -> None:
    plan = new_aggregator(tmp_path).evaluation_plan()
    assert plan.serve == [f"{TYPES[0]}@own"] * 3 + [f"{TYPES[1]}@own"] * 3 and plan.named == {"shared": "shared"}


def test_a_type_that_is_called_as_the_shared_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_class("fml"), "keys", ["shared", "cnn_small"])
    with pytest.raises(UserError, match="a type is called 'shared', as the shared model is; rename its spec file"):
        new_aggregator(tmp_path)
