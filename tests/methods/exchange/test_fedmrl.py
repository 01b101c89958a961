"""FedMRL: both heads' losses, what stays with a client and what travels, and clients side by side."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from client_settings import client_settings

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.exchange.fedmrl import FedMRLClient
from fedscale_ext.methods.exchange.mutual import personal_part
from fedscale_ext.models.families.headed import headed
from fedscale_ext.models.families.network_pair import FUSED, PROJECTIONS, pair_spec
from methods.exchange.exchange_harness import TYPES, aggregator_of_types, assert_cohorts_equal_one_by_one, bench
from methods.harness import CLASSES, SHAPE, means_of, trained_states, updates_for

OWN = models.named_spec("single_exit_mlp", SHAPE, CLASSES)
PAIR = pair_spec(OWN, headed(models.named_spec("cnn_small", SHAPE, CLASSES), 6), joined=FUSED)


new_aggregator = partial(aggregator_of_types, "fedmrl", model="cnn_small")


def test_the_loss_is_that_of_both_heads() -> None:
    rng = np.random.default_rng(1)
    personal, shared, labels = (
        rng.normal(size=(6, CLASSES)),
        rng.normal(size=(6, CLASSES)),
        np.array([0, 1, 2, 3, 4, 0]),
    )
    rows = np.arange(6)
    mine, theirs = (np.log(np.exp(each).sum(1)) - each[rows, labels] for each in (personal, shared))
    client = FedMRLClient(client_settings(weight=0.3), None)  # type: ignore[arg-type]
    losses = client.losses(torch.from_numpy(np.stack([shared, personal], 1)), torch.from_numpy(labels))
    np.testing.assert_allclose(losses.numpy(), mine + 0.3 * theirs, rtol=1e-9)


def test_clients_side_by_side_learn_what_they_learn_one_by_one() -> None:
    states = [{}, personal_part(bench(PAIR, 9).module().state_dict())]
    assert_cohorts_equal_one_by_one(FedMRLClient, PAIR, states, {}, weight=0.5, returns_tensors=False)


def test_the_projector_stays_with_the_client_and_the_shared_model_is_averaged(tmp_path: Path) -> None:
    aggregator = new_aggregator(tmp_path)
    items = aggregator.assign(1, np.array([2, 5]))  # of 20 and 50 samples
    template = aggregator.client_tensors_by_kind["client_state"].template(items[0].model)
    assert set(PROJECTIONS) < template.keys() and not any(name.startswith("shared.") for name in template)
    updates = updates_for(aggregator, items)
    states = trained_states(aggregator, 1, updates)
    aggregator.aggregate(1, updates, means_of(aggregator, 1, updates))
    for name, tensor in aggregator.pool["shared"].state.items():
        rows = [states[client][f"shared.{name}"].double().numpy() for client in (2, 5)]
        np.testing.assert_allclose(tensor.double().numpy(), (20 * rows[0] + 50 * rows[1]) / 70, rtol=1e-5, atol=1e-6)


def test_the_shared_model_travels_and_all_networks_count_as_work(tmp_path: Path) -> None:
    aggregator = new_aggregator(tmp_path)
    (item,) = aggregator.assign(1, np.array([2]))
    shared = models.cost(aggregator.pool["shared"].spec)
    assert (aggregator.download_bytes(item), aggregator.upload_bytes(item)) == (shared.bytes, shared.bytes)
    assert aggregator.pool[item.model].cost.forward_macs > models.cost(OWN).forward_macs + shared.forward_macs
    assert (
        aggregator.served_bytes()[1] == aggregator.pool[item.model].cost.bytes
    )  # a client is tested with the shared model
    assert aggregator.personal_bytes()[1] == aggregator.served_bytes()[1] - shared.bytes
    plan = aggregator.evaluation_plan()
    assert plan.serve[1] == f"{TYPES[0]}@own" and not plan.named


def test_a_checkpoint_needs_nothing_beside_the_models(tmp_path: Path) -> None:
    assert new_aggregator(tmp_path).state() == ({}, {})


def test_a_negative_weight_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"fedmrl.weight is -1"):
        new_aggregator(tmp_path, weight=-1)


def test_the_shared_model_gets_the_width_that_is_asked_for(tmp_path: Path) -> None:
    aggregator = new_aggregator(tmp_path, width=5)
    assert aggregator.pool["shared"].spec == headed(models.named_spec("cnn_small", SHAPE, CLASSES), 5)
    assert aggregator.pool["cnn_small"].state["projection.shared.weight"].shape[1] == 5
