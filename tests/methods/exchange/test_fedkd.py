"""FedKD: the adaptive losses of a pair, its compressed updates, and what counts as traffic."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import client_settings

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import Update
from fedscale_ext.methods.exchange.fedkd import RANKS, FedKDClient, SentRanks
from fedscale_ext.methods.exchange.low_rank import WHOLE, compressed, num_bytes
from fedscale_ext.methods.exchange.mutual import personal_part, shared_part
from fedscale_ext.models.families.network_pair import FEATURES, pair_spec
from fedscale_ext.tasks.answers.update_checks import Rejected
from fedscale_ext.transport import wire
from methods.exchange.exchange_harness import (
    TYPES,
    aggregator_of_types,
    assert_cohorts_equal_one_by_one,
    bench,
    samples,
)
from methods.exchange.test_fml import softmax
from methods.harness import CLASSES, SHAPE, means_of, trained_states, updates_for

MENTOR, MENTEE = (models.named_spec(name, SHAPE, CLASSES) for name in ("nasbench201_base", "cnn_small"))
PAIRS = [
    pair_spec(MENTOR, MENTEE, joined=FEATURES),
    pair_spec(models.named_spec("single_exit_mlp", SHAPE, CLASSES), MENTEE, joined=FEATURES),
]


new_aggregator = partial(
    aggregator_of_types, "fedkd", model="cnn_small", types=["single_exit_mlp", "nasbench201_base"], rounds=4
)


def play(aggregator: Any, round: int, participants: list[int], rank: int = 1) -> list[Update]:
    """One round of the hooks, in which every client reports matrices of one rank."""
    items = aggregator.assign(round, np.array(participants))
    aggregator.sent_tensors.begin(items)
    updates = updates_for(aggregator, items)
    for update in updates:
        ranks = aggregator.sent_tensors.template(update.item.model)[RANKS]
        aggregator.sent_tensors.take(round, update.item, {RANKS: torch.full_like(ranks, rank)})
    aggregator.aggregate(round, updates, means_of(aggregator, round, updates))
    aggregator.history.append(None)
    return updates


def losses_by_numpy(mentor: np.ndarray, mentee: np.ndarray, error: np.ndarray, labels: np.ndarray) -> np.ndarray:
    p, q, rows = softmax(mentor), softmax(mentee), np.arange(len(labels))
    tasks = -np.log(p[rows, labels]) - np.log(q[rows, labels])
    mutual = (q * (np.log(q) - np.log(p))).sum(1) + (p * (np.log(p) - np.log(q))).sum(1)
    return np.asarray(tasks + (mutual + 2 * error) / tasks.mean())


def batch(seed: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    mentor, mentee = rng.normal(size=(2, size, CLASSES))
    return mentor, mentee, rng.random(size), rng.integers(0, CLASSES, size)


def output_of(mentor: np.ndarray, mentee: np.ndarray, error: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack([mentee, mentor, np.repeat(error[:, None], CLASSES, 1)], 1))


def test_the_losses_are_those_of_the_tasks_the_distillation_and_the_features() -> None:
    mentor, mentee, error, labels = batch(1, 6)
    client = FedKDClient(client_settings(), None)  # type: ignore[arg-type]
    losses = client.losses(output_of(mentor, mentee, error), torch.from_numpy(labels))
    np.testing.assert_allclose(losses.numpy(), losses_by_numpy(mentor, mentee, error, labels), rtol=1e-9)


def test_padded_rows_of_a_cohort_do_not_weigh_in_the_sum_of_task_losses() -> None:
    full, short = batch(1, 6), batch(2, 4)
    padding = [part[:1].repeat(2, 0) for part in short]
    padded = [np.concatenate([part, more]) for part, more in zip(short, padding, strict=True)]
    client = FedKDClient(client_settings(), None)  # type: ignore[arg-type]
    client.is_sample = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    output = torch.stack([output_of(*full[:3]), output_of(*padded[:3])])
    losses = client.losses(output, torch.from_numpy(np.stack([full[3], padded[3]])))
    np.testing.assert_allclose(losses[0].numpy(), losses_by_numpy(*full), rtol=1e-9)
    np.testing.assert_allclose(losses[1, :4].numpy(), losses_by_numpy(*short), rtol=1e-9)


def test_the_error_of_features_survives_a_mask_of_absent_classes() -> None:
    mentor, mentee, error, labels = batch(1, 6)
    output = output_of(mentor, mentee, error)
    has = torch.zeros(CLASSES, dtype=torch.bool).index_fill(0, torch.from_numpy(labels), True)
    client = FedKDClient(client_settings(), None)  # type: ignore[arg-type]
    losses = client.losses(torch.where(has, output, 0.0), torch.from_numpy(labels))
    mentor, mentee = mentor * has.numpy(), mentee * has.numpy()
    np.testing.assert_allclose(losses.numpy(), losses_by_numpy(mentor, mentee, error, labels), rtol=1e-9)


@pytest.mark.parametrize("pair", PAIRS, ids=["batch norm", "an exit"])
def test_clients_side_by_side_learn_what_they_learn_one_by_one(pair: models.ModelSpec) -> None:
    states = [{}, personal_part(bench(pair, 9).module().state_dict())]
    assert "projection.weight" in states[1]
    assert_cohorts_equal_one_by_one(FedKDClient, pair, states, {}, energy=0.9)


def test_a_client_sends_the_compressed_change_of_its_mentee_and_keeps_its_mentor() -> None:
    at = bench(PAIRS[0])
    conf = client_settings(model_key="a", client_state={}, returns_tensors=True, energy=0.8)
    whole = client_settings(model_key="a", client_state={}, returns_tensors=False, energy=0.8)
    before = shared_part({name: value.clone() for name, value in at.module().state_dict().items()})
    plain, model = at.module(), at.module()
    client_state = FedKDClient(whole, at).train(samples(9), plain, whole)["client_state"]
    result = FedKDClient(conf, at).train(samples(9), model, conf)
    expected, ranks = compressed(before, shared_part(plain.state_dict()), 0.8)
    assert torch.equal(result["returned"][RANKS], ranks) and (ranks != WHOLE).any()
    for name, tensor in shared_part(result["update_weight"]).items():
        torch.testing.assert_close(tensor, expected[name], atol=0, rtol=0)
    assert any(not torch.equal(expected[name], tensor) for name, tensor in shared_part(plain.state_dict()).items())
    assert all(torch.equal(result["client_state"][name], client_state[name]) for name in client_state)


def test_the_energy_rises_linearly_and_the_mentee_changes_by_the_compressed_mean(tmp_path: Path) -> None:
    aggregator = new_aggregator(tmp_path, start_energy=0.2, end_energy=0.6)
    assert [aggregator.energy(round) for round in (1, 2, 4, 5)] == pytest.approx([0.3, 0.4, 0.6, 0.6])
    before = dict(aggregator.pool["shared"].state)
    (item, *_) = aggregator.assign(1, np.array([2, 3, 6]))
    assert item.objective == {"energy": pytest.approx(0.3)}
    updates = updates_for(aggregator, aggregator.assign(1, np.array([2, 3, 6])))  # of 20, 30 and 60 samples
    states = trained_states(aggregator, 1, updates)
    aggregator.aggregate(1, updates, means_of(aggregator, 1, updates))
    mean = {
        name: (20 * states[2][f"shared.{name}"] + 30 * states[3][f"shared.{name}"] + 60 * states[6][f"shared.{name}"])
        / 110
        for name, tensor in before.items()
        if tensor.is_floating_point()
    }
    expected, _ = compressed(before, {**before, **mean}, 0.3)
    for name in mean:
        torch.testing.assert_close(aggregator.pool["shared"].state[name], expected[name], atol=1e-5, rtol=1e-4)
        for key in aggregator.keys:
            assert torch.equal(aggregator.pool[key].state[f"shared.{name}"], aggregator.pool["shared"].state[name])
    assert any(float((expected[name] - mean[name]).abs().max()) > 1e-3 for name in mean)


def test_the_energy_rises_by_the_budget_that_ends_the_job(tmp_path: Path) -> None:
    aggregator = new_aggregator(tmp_path, start_energy=0.2, end_energy=0.6, rounds=1000, stop_macs=1000.0)
    for spent, energy in ((250.0, 0.3), (1000.0, 0.6), (1100.0, 0.6)):
        aggregator.spent_macs = spent
        assert aggregator.energy(2) == pytest.approx(energy)


def test_a_client_downloads_what_it_lacks_and_uploads_its_factors(tmp_path: Path) -> None:
    aggregator = new_aggregator(tmp_path, start_energy=0.01, end_energy=0.01)
    mentee = aggregator.pool["shared"].state
    whole = models.cost(aggregator.pool["shared"].spec).bytes
    (item,) = aggregator.assign(1, np.array([5]))
    ranks = aggregator.sent_tensors.template(item.model)[RANKS]
    assert (
        aggregator.download_bytes(item) == whole and aggregator.upload_bytes(item) == whole + ranks.nbytes
    )  # it has not sent anything yet
    for round, participants in enumerate([[1, 5], [1, 2], [1, 3]], 1):
        play(aggregator, round, participants)
    first, second, third = aggregator.update_bytes
    assert max(aggregator.update_bytes) < whole / 3
    downloads = [aggregator.download_bytes(aggregator.item_of(client)) for client in range(1, 7)]
    # client 1 lacks the last update, and client 5 all; clients 4 and 6 have no mentee
    assert downloads == [third, min(whole, second + third), third, whole, min(whole, first + second + third), whole]
    assert aggregator.upload_bytes(aggregator.item_of(1)) == num_bytes(mentee, torch.ones_like(ranks)) < whole / 3
    assert [aggregator.download_bytes(item) for item in aggregator.next_items()] == downloads


def test_a_client_keeps_the_projection_and_is_served_its_mentor(tmp_path: Path) -> None:
    aggregator = new_aggregator(tmp_path)
    for client, key in ((1, aggregator.keys[0]), (6, aggregator.keys[1])):
        pair, mentor_bytes = aggregator.pool[key].state, models.cost(models.named_spec(key, SHAPE, CLASSES)).bytes
        batches = sum(tensor.nbytes for name, tensor in pair.items() if name.startswith("own.") and "batches" in name)
        assert aggregator.served_bytes()[client - 1] == mentor_bytes  # BatchNorm's counts of batches are not kept
        assert aggregator.personal_bytes()[client - 1] == mentor_bytes - batches + pair["projection.weight"].nbytes


def test_a_resumed_server_knows_what_clients_have(tmp_path: Path) -> None:
    aggregator, other = new_aggregator(tmp_path / "a"), new_aggregator(tmp_path / "b")
    play(aggregator, 1, [1, 5])
    play(aggregator, 2, [2, 6])
    other.pool.update("shared", aggregator.pool["shared"].state)
    other.load_state(*aggregator.state())
    assert [other.item_of(client).bytes for client in range(1, 7)] == [
        aggregator.item_of(client).bytes for client in range(1, 7)
    ]
    assert other.update_bytes == aggregator.update_bytes and other.update_bytes is not aggregator.update_bytes


def test_ranks_that_cannot_be_are_rejected(tmp_path: Path) -> None:
    aggregator = new_aggregator(tmp_path)
    (item,) = aggregator.assign(1, np.array([5]))
    assert isinstance(aggregator.sent_tensors, SentRanks)
    most = aggregator.sent_tensors.template(item.model)[RANKS]
    for wrong in (WHOLE - 1, 100_000):
        section = wire.tensors_to_bytes({RANKS: torch.full_like(most, wrong)})
        with pytest.raises(Rejected, match="its ranks are not those of its tensors"):
            aggregator.sent_tensors.checked(item, memoryview(section))


def test_an_energy_of_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"fedkd.start_energy is 0.*above 0 and at most 1"):
        new_aggregator(tmp_path, start_energy=0.0, types=TYPES)
