"""FedNAS: steps of alphas and weights, alphas that are averaged, the network that comes of it, whole jobs."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, client_settings
from job_results import assert_equal, result
from server.test_jobs import command
from torch.nn import functional

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.local_steps import hold_out
from fedscale_ext.methods.search.fednas import ALPHAS, DERIVED, SEARCHED, FedNASAggregator, FedNASClient
from fedscale_ext.models.supernet.family import mixed
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.util.macs import MacCounter
from methods.harness import aggregate, equal, play, samples, server, trained_states, updates_for
from methods.small_space import spec_of, written

SHAPE = (1, 16, 16)
ADAM = {"lr": 0.01, "beta1": 0.5, "beta2": 0.999, "weight_decay": 1e-3}


@pytest.fixture
def fednas(tmp_path: Path) -> Any:
    def make(**keys: Any) -> Any:
        return server(FedNASAggregator, "fednas", shape=SHAPE, **{"model": str(written(tmp_path)), **keys})

    return make


def network(tmp_path: Path) -> torch.nn.Module:
    spec = mixed(spec_of(SHAPE, 5, tmp_path), "alphas")
    module = models.build(spec).double()
    module.load_state_dict(models.initial_state(spec, 3))
    return module


def settings(**changes: Any) -> ClientConfig:
    search = {"train": changes.pop("train", 1.0), "val": changes.pop("val", 1.0), "adam": ADAM}
    defaults = {"local_steps": 1, "batch_size": 16, "held_out": 0.5}
    return client_settings(search=search, **{**defaults, **changes})


def test_the_learning_rate_falls_as_a_cosine_and_begins_anew_with_the_derived_network(fednas: Any) -> None:
    aggregator = fednas(search_rounds=5, rounds=14)
    first = aggregator.args.learning_rate
    rates = [aggregator.learning_rate(round) for round in range(1, 15)]
    np.testing.assert_allclose([rates[0], rates[2], rates[4]], [first, (first + 1e-3) / 2, 1e-3])
    np.testing.assert_allclose([rates[5], rates[9], rates[13]], [first, (first + 1e-3) / 2, 1e-3])
    other = fednas(search_rounds=5, rounds=14, schedule="job")
    assert other.learning_rate(6) == other.learning_rate(1) == first


def test_the_second_cosine_ends_when_the_budget_is_spent(fednas: Any) -> None:
    aggregator = fednas(search_rounds=2, rounds=1000, stop_macs=1000.0)
    first = aggregator.args.learning_rate
    aggregator.history = [SimpleNamespace(training_macs=300.0)] * 2
    for spent, done in ((600.0, 0.0), (800.0, 0.5), (1000.0, 1.0)):
        aggregator.spent_macs = spent
        expected = 1e-3 + (first - 1e-3) * (1 + math.cos(math.pi * done)) / 2
        assert aggregator.learning_rate(3) == pytest.approx(expected)
    aggregator.history, aggregator.spent_macs = aggregator.history[:1], 300.0
    assert aggregator.learning_rate(1) == first  # a search is as long as search_rounds, whatever it costs


@pytest.mark.parametrize(("train", "val"), [(1.0, 1.0), (0.0, 0.7), (0.5, 0.0)])
def test_a_step_moves_alphas_by_both_losses_then_weights_by_one(tmp_path: Path, train: float, val: float) -> None:
    data, module, twin = samples(12, shape=SHAPE), network(tmp_path), network(tmp_path).train()
    conf = settings(train=train, val=val, local_steps=2, clip_norm=5.0)
    result = FedNASClient(conf, NO_BENCH).train(data, module, conf)
    rows, validation = (torch.from_numpy(part) for part in hold_out(12, 0.5, conf.seed, conf.client_id))
    parameters = dict(twin.named_parameters())
    alphas = [tensor for name, tensor in parameters.items() if name.startswith(ALPHAS)]
    weights = [tensor for name, tensor in parameters.items() if not name.startswith(ALPHAS)]
    adam = torch.optim.Adam(alphas, lr=0.01, betas=(0.5, 0.999), weight_decay=1e-3)
    sgd = torch.optim.SGD(weights, lr=0.05, momentum=0.9, weight_decay=5e-4)

    def loss(part: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(twin(data.x[part]), data.y[part])

    for _ in range(2):
        adam.zero_grad()
        (train * loss(rows) if train else 0.0 * alphas[0].sum()).backward()
        if val:
            (val * loss(validation)).backward()
        adam.step()
        sgd.zero_grad()
        loss(rows).backward()
        torch.nn.utils.clip_grad_norm_(weights, 5.0)
        sgd.step()
    for name, parameter in parameters.items():
        torch.testing.assert_close(result["update_weight"][name], parameter.detach(), atol=1e-9, rtol=1e-7)
    assert result["trained_size"] == 2 * len(rows)


@pytest.mark.parametrize("ratio", [0.5, 0.2])
@pytest.mark.parametrize(("train", "val"), [(1.0, 1.0), (0.0, 0.7), (0.5, 0.0)])
def test_an_item_counts_what_a_client_multiplies(
    fednas: Any, tmp_path: Path, train: float, val: float, ratio: float
) -> None:
    aggregator, counter = fednas(lambda_train=train, lambda_val=val, val_ratio=ratio), MacCounter()
    cost, task = aggregator.pool[SEARCHED].cost, aggregator.task
    item = aggregator.assign(1, np.array([1]))[0]
    conf = settings(train=train, val=val, local_steps=task.local_steps, batch_size=task.batch_size, held_out=ratio)
    with counter.counting():
        data = samples(int(task.train_sizes[0]), shape=SHAPE)
        seen = FedNASClient(conf, NO_BENCH).train(data, network(tmp_path), conf)["trained_size"]
    macs = item.compute_fraction * cost.training_macs + item.forward_fraction * cost.forward_macs
    assert seen * macs == pytest.approx(counter.read())
    held = {0.5: 5, 0.2: 2}[ratio]  # of 10, in batches of 5
    passes = 1 + (train > 0) + (val > 0) * held / 5
    assert item.compute_fraction + item.forward_fraction == pytest.approx(passes)


def test_a_client_of_one_sample_has_nothing_to_validate_with(tmp_path: Path) -> None:
    conf = settings(train=0.0)
    module = network(tmp_path)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    after = FedNASClient(conf, NO_BENCH).train(samples(1, shape=SHAPE), module, conf)["update_weight"]
    assert all(torch.equal(after[name], before[name]) for name in before if name.startswith(ALPHAS))
    assert not torch.equal(after["classifier.bias"], before["classifier.bias"])


def test_alphas_are_averaged_and_not_the_first_clients(fednas: Any) -> None:
    aggregator = fednas()
    updates = updates_for(aggregator, aggregator.assign(1, np.array([1, 2, 4])))
    states = trained_states(aggregator, 1, updates)  # before the server's state changes
    weights = {update.client: aggregator.weight(update.item) for update in updates}
    assert weights == {1: 10.0, 2: 20.0, 4: 40.0}
    aggregate(aggregator, 1, updates)
    names = [name for name in aggregator.pool[SEARCHED].state if name.startswith(ALPHAS)]
    assert len(names) == 2
    for name in names:
        mean = sum(weights[client] * state[name].double() for client, state in states.items()) / 70.0
        new = aggregator.pool[SEARCHED].state[name].double()
        torch.testing.assert_close(new, mean, atol=1e-6, rtol=1e-6)
        assert not any(torch.allclose(new, state[name].double(), atol=1e-4) for state in states.values())


def test_the_largest_alphas_make_the_network(fednas: Any) -> None:
    for init in ("random", "inherited"):
        aggregator = fednas(search_rounds=2, init=init)
        item = aggregator.assign(1, np.array([2]))[0]
        assert (item.model, item.overrides["held_out"]) == (SEARCHED, 0.5)
        play(aggregator, 1)
        state = dict(aggregator.pool[SEARCHED].state)
        assert DERIVED not in aggregator.pool and aggregator.evaluation_plan().serve == [SEARCHED] * 6
        state[f"{ALPHAS}0"], state[f"{ALPHAS}1"] = (
            torch.tensor([0.0, 0.3, 0.2, 0.1]),
            torch.tensor([0.0, 1.0, 1.0, 0.9]),
        )
        aggregator.pool.update(SEARCHED, state)
        aggregator.evolve(2)
        spec = aggregator.pool[DERIVED].spec
        assert spec["ops"] == (("dsconv3",), ("dsconv3",)) and "mixed" not in dict(spec.fields)
        expected = state if init == "inherited" else models.initial_state(spec, 1)
        assert equal(aggregator.pool[DERIVED].state, {name: expected[name] for name in aggregator.pool[DERIVED].state})
        after = aggregator.assign(3, np.array([2]))[0]
        assert (after.model, after.objective, after.compute_fraction) == (DERIVED, {}, 1.0)
        assert aggregator.evaluation_plan().named == {"global": DERIVED}
        before = aggregator.pool[SEARCHED].version
        play(aggregator, 3)
        assert aggregator.pool[SEARCHED].version == before and aggregator.pool[DERIVED].version == 1
        assert aggregator.lineage()[DERIVED] == {"parent": SEARCHED, "birth": 2, "steps": ["dsconv3 dsconv3"]}


def test_clients_of_the_network_train_like_anybodys() -> None:
    assert type(FedNASAggregator.Client(client_settings(), NO_BENCH)) is MultiModelClient
    assert type(FedNASAggregator.Client(settings(), NO_BENCH)) is FedNASClient


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"search_rounds": 0}, "at least 1"),
        ({"init": "zero"}, "fednas.init"),
        ({"val_ratio": 1.0}, "below 1"),
        ({"lambda_train": 0, "lambda_val": 0}, "must not both be zero"),
        ({"alpha_lr": 0}, "above 0"),
        ({"alpha_beta1": 1}, "below 1"),
        ({"model": "cnn_small"}, "needs a supernet, and model cnn_small is none"),
        ({"model": "rnn_positions", "data_set": "shakespeare"}, "readout last, such as rnn"),
    ],
)
def test_bad_input_is_one_sentence(fednas: Any, keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        fednas(**keys)


def test_jobs_search_and_train_whoever_does_it_and_resume_between(job_file: Path, tmp_path: Path) -> None:
    keys = {"method": "fednas", "model": str(written(tmp_path)), "fednas.search_rounds": 2, "eval_interval": 1}
    there = command(job_file, "there", **keys, rounds=3, worker_ips="localhost:[2]")
    fedscale_ext.run(job_file, job_name="here", **keys, rounds=2, num_executors=1)
    fedscale_ext.run(job_file, job_name="here", **keys, rounds=3, resume=True)
    assert_equal(result(job_file.parent / "logs" / "here" / "logs"), there)
    rounds = there["rounds"]
    assert [entry["assignments"] for entry in rounds] == [{SEARCHED: 4}, {SEARCHED: 4}, {DERIVED: 4}]
    assert not any(entry["failed"] for entry in rounds)
    assert set(there["models"]) == {SEARCHED, DERIVED}


SHORT = "rounds is 4: the search ends with round 5, so this job derives no network and serves the whole supernet"
UNTRAINED = "rounds is 5: the search ends with the last one, so the network that it derives does not train"


@pytest.mark.parametrize(("rounds", "notices"), [(4, [SHORT]), (5, [UNTRAINED]), (6, [])])
def test_a_job_too_short_for_its_search_says_so_before_it_begins(fednas: Any, rounds: int, notices: list[str]) -> None:
    assert list(fednas(search_rounds=5, rounds=rounds).notices) == notices


def test_a_job_that_ends_before_its_search_says_so_at_its_end(fednas: Any) -> None:
    aggregator = fednas(search_rounds=2, rounds=9)
    play(aggregator, 1)
    assert (
        aggregator.unfinished_notice()
        == "the search did not end: no network is derived, and the whole supernet is served"
    )
    play(aggregator, 2)
    assert aggregator.unfinished_notice() == "the job ended with the search: the network that it derived did not train"
    play(aggregator, 3)
    assert aggregator.unfinished_notice() is None
    short = fednas(search_rounds=2, rounds=1)  # this one said so at its beginning
    play(short, 1)
    assert short.unfinished_notice() is None


def test_the_summary_tells_that_a_budget_ended_the_search(job_file: Path, tmp_path: Path) -> None:
    keys = {"method": "fednas", "model": str(written(tmp_path)), "fednas.search_rounds": 2}
    notices = fedscale_ext.run(job_file, **keys, rounds=3, stop_macs=1.0)["notices"]
    assert "the search did not end: no network is derived, and the whole supernet is served" in notices


def test_clients_that_do_not_afford_the_supernet_are_counted_and_told(fednas: Any) -> None:
    aggregator = fednas(capacity=[1e15, 1.0, 1e15, 2.0, 1e15, 1e15])
    assert aggregator.beyond_capacity == 2 and fednas(capacity=[1e15] * 6).beyond_capacity == 0
    assert any("they would train it all the same: 2, 4" in event["message"] for event in aggregator.events)
