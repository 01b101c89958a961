"""FedAdam and FedYogi: mathematics, constants, and what both share of their base."""

from pathlib import Path

import numpy as np
import pytest
import torch

import fedscale_ext
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.averaging.fedadam import FedAdamAggregator
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.averaging.fedyogi import FedYogiAggregator
from fedscale_ext.models import parameter_names
from methods.harness import equal, means_of, play, pool_states, server, updates_for

BOTH = [(FedAdamAggregator, "fedadam"), (FedYogiAggregator, "fedyogi")]


def test_fedadam_is_algorithm_2_of_its_paper() -> None:
    aggregator = server(FedAdamAggregator, "fedadam", eta=0.1, tau=1e-2, beta=0.8, beta2=0.7)
    name = "stem.conv.weight"
    x = aggregator.pool["global"].state[name].double().numpy()
    m, v = np.zeros_like(x), np.full_like(x, 1e-4)
    for number in (1, 2, 3):
        updates = updates_for(aggregator, aggregator.assign(number, np.arange(1, 7)))
        means = means_of(aggregator, number, updates)
        change = means["global"][name].double().numpy() - aggregator.pool["global"].state[name].double().numpy()
        m, v = 0.8 * m + 0.2 * change, 0.7 * v + 0.3 * change**2
        x = aggregator.pool["global"].state[name].double().numpy() + 0.1 * m / (np.sqrt(v) + 1e-2)
        aggregator.aggregate(number, updates, means)
        np.testing.assert_allclose(aggregator.pool["global"].state[name].numpy(), x, rtol=1e-5, atol=1e-7)


def test_fedyogis_first_step_has_about_the_length_eta_wherever_the_mean_changed() -> None:
    aggregator, plain = server(FedYogiAggregator, "fedyogi"), server(FedAvgAggregator, "fedavg")
    start = pool_states(aggregator)["global"]
    play(aggregator, 1)
    play(plain, 1)
    name = "stem.conv.weight"
    step, change = (one.pool["global"].state[name] - start[name] for one in (aggregator, plain))
    torch.testing.assert_close(step, 3e-3 * change.sign(), rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize(("cls", "method"), BOTH)
def test_parameters_move_adaptively_and_buffers_are_averaged(cls: type, method: str) -> None:
    aggregator = server(cls, method)
    updates = updates_for(aggregator, aggregator.assign(1, np.array([1, 2])))
    means = means_of(aggregator, 1, updates)
    aggregator.aggregate(1, updates, means)
    parameters = parameter_names(aggregator.pool["global"].spec)
    for name, value in aggregator.pool["global"].state.items():
        assert (value == means["global"][name]).all().item() == (name not in parameters), name


def test_adam_and_yogi_differ_from_the_second_moments_first_step_on() -> None:
    same = {"eta": 0.1, "tau": 1e-3, "beta": 0.9, "beta2": 0.9}
    adam, yogi = server(FedAdamAggregator, "fedadam", **same), server(FedYogiAggregator, "fedyogi", **same)
    play(adam, 1)
    play(yogi, 1)
    assert not equal(pool_states(adam)["global"], pool_states(yogi)["global"])


def test_fedadams_constants_are_the_papers_whatever_fedscales_yogi_keys_say() -> None:
    p = server(FedAdamAggregator, "fedadam", yogi_eta=0.5).params
    assert (p.eta, p.tau, p.beta, p.beta2) == (1e-2, 1e-3, 0.9, 0.99)


def test_fedyogis_constants_are_fedscales_unless_given() -> None:
    p = server(FedYogiAggregator, "fedyogi", yogi_eta=0.5, yogi_beta2=0.9, beta2=0.8).params
    assert (p.eta, p.tau, p.beta, p.beta2) == (0.5, 1e-8, 0.9, 0.8)


@pytest.mark.parametrize(("cls", "method"), BOTH)
@pytest.mark.parametrize("wrong", [{"eta": 0}, {"tau": 0}, {"tau": -1}, {"beta": 1}, {"beta2": 1}, {"beta2": -0.1}])
def test_constants_that_cannot_be_are_refused(cls: type, method: str, wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=rf"{method}\.{next(iter(wrong))} is .*; it must be"):
        server(cls, method, **wrong)


@pytest.mark.parametrize(("cls", "method"), BOTH)
def test_it_continues_from_its_state_bit_for_bit(cls: type, method: str) -> None:
    unbroken, resumed = server(cls, method), server(cls, method)
    play(unbroken, 1)
    resumed.load_state(*unbroken.state())
    resumed.pool.update("global", pool_states(unbroken)["global"])
    for aggregator in (unbroken, resumed):
        play(aggregator, 2)
    assert equal(unbroken.pool["global"].state, resumed.pool["global"].state)


def test_a_job_trains_with_fedadam(job_file: Path) -> None:
    summary = fedscale_ext.run(job_file, method="fedadam", model="cnn_small")
    assert summary["method"] == "fedadam" and summary["clients"]["failed_total"] == 0
    assert summary["params"]["tau"] == 1e-3
