"""FedAvg and FedProx by their hooks."""

import numpy as np
import pytest
import torch

from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.averaging.fedprox import FedProxAggregator
from methods.harness import aggregate, equal, play, server, trained_states, updates_for


def weighted_mean(aggregator, states):
    """By hand: w_k = 10 k, as the harness gives out samples."""
    total = 10 * sum(states)
    names = models.parameter_names(aggregator.pool["global"].spec)
    return {name: sum(state[name].double() * 10 * c for c, state in states.items()) / total for name in names}


def test_fedavg_weighs_clients_by_their_samples() -> None:
    aggregator = server(FedAvgAggregator, "fedavg")
    items = aggregator.assign(1, np.array([1, 3, 6]))
    assert [(item.client, item.model, dict(item.overrides)) for item in items] == [
        (client, "global", {}) for client in (1, 3, 6)
    ]
    updates = updates_for(aggregator, items)
    assert [update.samples for update in updates] == [10, 30, 60]
    states = trained_states(aggregator, 1, updates)
    aggregate(aggregator, 1, updates)
    for name, value in weighted_mean(aggregator, states).items():
        torch.testing.assert_close(aggregator.pool["global"].state[name].double(), value, rtol=1e-6, atol=1e-7)
    # not what FedScale does (defect 8)
    plain = torch.stack([state["stem.conv.weight"] for state in states.values()]).mean(0)
    assert not torch.allclose(aggregator.pool["global"].state["stem.conv.weight"], plain)


def test_without_a_model_fedscales_own_default_is_not_looked_for() -> None:
    aggregator = server(FedAvgAggregator, "fedavg")
    aggregator.config = make_config({}, {"method": "fedavg"})
    aggregator.args = aggregator.config.fedscale
    for spec_of in (aggregator.initial_spec, aggregator.smallest_spec):
        with pytest.raises(UserError, match="key 'model' is not given, and method fedavg trains one: name it"):
            spec_of()


def test_fedavg_serves_everybody_its_model() -> None:
    plan = server(FedAvgAggregator, "fedavg").evaluation_plan()
    assert list(plan.serve) == ["global"] * 6
    assert plan.named == {"global": "global"}


def test_the_first_model_depends_on_the_seed_alone() -> None:
    one, again, other = (server(FedAvgAggregator, "fedavg", seed=seed) for seed in (1, 1, 2))
    assert equal(one.pool["global"].state, again.pool["global"].state)
    assert not equal(one.pool["global"].state, other.pool["global"].state)


def test_the_learning_rate_falls_by_steps_down_to_its_minimum() -> None:
    aggregator = server(FedAvgAggregator, "fedavg")
    keys = {"learning_rate": 0.08, "decay_factor": 0.5, "decay_round": 3, "min_learning_rate": 0.015}
    aggregator.args = make_config({}, keys).fedscale
    rates = [aggregator.learning_rate(round) for round in range(1, 11)]
    assert rates == [0.08] * 2 + [0.04] * 3 + [0.02] * 3 + [0.015] * 2


def test_fedprox_asks_for_the_proximal_term_and_else_is_fedavg() -> None:
    aggregator, plain = server(FedProxAggregator, "fedprox", mu=0.3), server(FedAvgAggregator, "fedavg")
    assert [dict(item.overrides) for item in aggregator.assign(1, np.array([2, 4]))] == [{"prox_mu": 0.3}] * 2
    play(aggregator, 1)
    play(plain, 1)
    assert equal(aggregator.pool["global"].state, plain.pool["global"].state)


def test_fedproxs_mu_is_fedscales_unless_given_and_not_negative() -> None:
    assert server(FedProxAggregator, "fedprox").params.mu == 0.1
    assert server(FedProxAggregator, "fedprox", proxy_mu=0.7).params.mu == 0.7
    assert server(FedProxAggregator, "fedprox", proxy_mu=0.7, mu=0.2).params.mu == 0.2
    for mu, said in ((-1, "at least 0"), (float("nan"), "a finite number")):
        with pytest.raises(UserError, match=f"must be {said}"):
            server(FedProxAggregator, "fedprox", mu=mu)
