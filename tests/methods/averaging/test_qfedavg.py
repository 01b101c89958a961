"""q-FedAvg's step against NumPy, its clients' losses, and whole jobs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import client_settings
from torch.nn import functional

from fedscale_ext import models
from fedscale_ext.config.job_config import load_config, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.averaging.qfedavg import QFedAvgAggregator, QFedAvgClient
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.samples import ClientSamples
from methods.harness import play, server, trained_states, updates_for

MOMENTUM = 2 / (1.9 + 1)  # two steps at momentum 0.9: the first gradient counts 1.9 times, the second once
LOSSES = {1: 0.5, 2: 1.5, 3: 3.0, 4: 1.0, 5: 0.2, 6: 2.0}


def one_round(
    q: float, lipschitz: float | None = None, losses: dict[int, float] = LOSSES
) -> tuple[Any, dict[str, Any], dict[int, Any]]:
    """The server after a round, its model before it and the clients' states."""
    aggregator = server(QFedAvgAggregator, "qfedavg", q=q, L=lipschitz)
    before = dict(aggregator.pool["global"].state)
    updates = updates_for(aggregator, aggregator.assign(1, np.arange(1, 7)), losses)
    states = trained_states(aggregator, 1, updates)
    for update in updates:
        aggregator.collect(1, update, states[update.client])
    aggregator.aggregate(1, updates, {})
    return aggregator, before, states


def test_the_pass_that_measures_a_clients_loss_counts() -> None:
    aggregator = server(QFedAvgAggregator, "qfedavg")
    (item,) = aggregator.assign(1, np.array([6]))
    assert item.forward_fraction == pytest.approx(60 / 10)  # it has 60 samples; two steps of five follow


@pytest.mark.parametrize(("q", "lipschitz", "scale"), [
    (0.0, None, 1.0), (0.5, 7.0, 1.0), (1.0, None, 1.0), (3.0, 2.0, 1.0), (3.0, 2.0, 1e-3), (100.0, None, 1.0),
    (100.0, 0.001, 1e-4), (100.0, None, 1e3), (50.0, None, 1e6),
])  # fmt: skip
def test_the_step_is_algorithm_2(q: float, lipschitz: float | None, scale: float) -> None:
    losses = {client: scale * loss for client, loss in LOSSES.items()}
    aggregator, before, states = one_round(q, lipschitz, losses)
    names = models.parameter_names(aggregator.pool["global"].spec)
    flat = {c: np.concatenate([s[n].double().numpy().ravel() for n in names]) for c, s in states.items()}
    start = np.concatenate([before[n].double().numpy().ravel() for n in names])
    large = lipschitz or MOMENTUM / 0.05
    delta, h = np.zeros_like(start), 0.0
    for client, loss in losses.items():
        share, loss, gradient = 10 * client, loss + 1e-10, large * (start - flat[client])
        power = (loss / (3.0 * scale)) ** q  # over that of the largest loss, which the step does not see
        delta += share * power * gradient
        h += share * (q * power / loss * (gradient**2).sum() + large * power)
    expected = start - delta / h
    weights = np.concatenate([aggregator.pool["global"].state[n].numpy().ravel() for n in names])
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-7)
    assert np.abs(weights - start).max() > 1e-7


def test_q_of_zero_is_fedavg_and_buffers_are_always_averaged() -> None:
    plain = server(FedAvgAggregator, "fedavg")
    play(plain, 1)
    for q in (0.0, 2.0):
        aggregator, _, _ = one_round(q)
        names = models.parameter_names(aggregator.pool["global"].spec)
        for name, value in plain.pool["global"].state.items():
            near = torch.allclose(aggregator.pool["global"].state[name].double(), value.double(), rtol=1e-5, atol=1e-7)
            assert near == (q == 0 or name not in names), name


def test_rounds_do_not_mix() -> None:
    aggregator, _, _ = one_round(1.0)
    updates = updates_for(aggregator, aggregator.assign(2, np.array([2])), LOSSES)
    states = trained_states(aggregator, 2, updates)
    aggregator.collect(2, updates[0], states[2])
    large, loss = MOMENTUM / 0.05, 1.5 + 1e-10
    names = models.parameter_names(aggregator.pool["global"].spec)
    moved = sum(float((large * (aggregator.pool["global"].state[n].double() - states[2][n].double())).square().sum())
                for n in names)  # fmt: skip
    assert aggregator._h == pytest.approx(20 * (moved + large * loss), rel=1e-9)


@pytest.mark.parametrize("key", ["q", "L"])
def test_bad_hyperparameters_are_refused(key: str) -> None:
    for value in (-1.0, float("nan")):
        with pytest.raises(UserError, match=f"qfedavg.{key}"):
            server(QFedAvgAggregator, "qfedavg", **{key: value})


def bench_with(state: Any, spec: models.ModelSpec) -> Workbench:
    from fedscale_ext.transport import wire

    bench = Workbench(torch.device("cpu"))
    bench.keep({"models": {"global": {"version": 0, "spec": spec.to_json()}}}, {"global": wire.tensors_to_bytes(state)})
    return bench


def test_clients_report_the_loss_of_the_model_that_they_were_handed_alone_and_side_by_side() -> None:
    spec = models.named_spec("nasbench201_base", (1, 8, 8), 5)
    bench = bench_with(models.initial_state(spec, 1), spec)
    rng = np.random.default_rng(0)
    data = [ClientSamples(torch.from_numpy(rng.normal(size=(n, 1, 8, 8))).float(),
                          torch.from_numpy(rng.integers(0, 5, n))) for n in (12, 9)]  # fmt: skip
    own_settings = {"batch_size": 4, "local_steps": 3, "client_weight_decay": 0.0, "test_bsz": 5, "model_key": "global"}
    confs = [client_settings(client, **own_settings) for client in (1, 2)]
    client = QFedAvgClient(confs[0], bench)
    expected = []
    for samples in data:
        module = bench.module("global").eval()
        with torch.no_grad():
            expected.append(float(functional.cross_entropy(module(samples.x), samples.y)))
    alone = [client.train(samples, bench.module("global"), conf) for samples, conf in zip(data, confs, strict=True)]
    cohort = bench.cohort("global", 2, 2, factored=False)
    assert cohort is not None
    together = client.train_cohort(data, cohort, confs)
    for results in (alone, together):
        assert [one["moving_loss"] for one in results] == pytest.approx(expected, rel=1e-5)
        assert [one["trained_size"] for one in results] == [12, 12]


@pytest.mark.parametrize("cohort", [1, 2])
def test_a_job_with_q_of_zero_is_fedavgs_job(job_file: Path, cohort: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    plain_way = MultiModelClient.train_cohort

    def counted(client: Any, data: Any, *rest: Any) -> Any:
        together.append(len(data))
        return plain_way(client, data, *rest)

    monkeypatch.setattr(MultiModelClient, "train_cohort", counted)
    same = {"model": "cnn_small", "rounds": 3, "cohort_size": cohort, "num_participants": 7}

    def job(name: str, method: str, **keys: Any) -> dict[str, Any]:
        return run_in_process(with_values(load_config(job_file), method=method, job_name=name, **same, **keys))

    plain, fair, other = job("plain", "fedavg"), job("fair", "qfedavg", **{"qfedavg.q": 0}), job("other", "qfedavg")
    assert (2 in together) == (cohort == 2)
    assert fair["clients"]["failed_total"] == 0
    assert fair["loss"]["test"] == pytest.approx(plain["loss"]["test"], rel=1e-3)
    assert other["loss"]["test"] != pytest.approx(plain["loss"]["test"], rel=1e-3)


def test_a_resumed_job_goes_on_bit_for_bit(job_file: Path) -> None:
    said = SimpleNamespace(summaries=[])
    for name, parts in (("whole", [{}]), ("parts", [{"rounds": 2}, {"resume": True}])):
        for part in parts:
            keys = {"method": "qfedavg", "model": "cnn_small", "rounds": 4, "job_name": name, **part}
            summary = run_in_process(with_values(load_config(job_file), **keys))
        said.summaries.append(json.dumps([summary["accuracy"], summary["loss"]]))
    assert said.summaries[0] == said.summaries[1]
