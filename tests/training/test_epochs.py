"""Clients that pass over their samples ``local_epochs`` times instead of taking a number of steps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client_settings import client_settings
from hypothesis import given
from hypothesis import strategies as st
from job_results import result

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.local_steps import drawn_rows, local_steps, step_sizes
from fedscale_ext.core.types import Task
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.averaging.qfedavg import QFedAvgAggregator
from fedscale_ext.methods.submodel.exit_levels import MultiExitClient
from fedscale_ext.server.method_base.requirements import check_local_training
from training.cohorts import FAMILIES, both_ways, exits


@given(samples=st.integers(1, 60), batch=st.integers(1, 20), epochs=st.integers(1, 3))
def test_each_epoch_sees_every_sample_once_in_an_order_of_its_own(samples: int, batch: int, epochs: int) -> None:
    *_, steps, same = local_steps(samples, batch, 7, epochs, {})
    assert same == epochs
    conf = client_settings(batch_size=batch, local_steps=steps, local_epochs=epochs)
    drawn = drawn_rows(samples, conf, np.random.default_rng(0))
    assert [len(rows) for rows in drawn] == step_sizes(samples, batch, steps, epochs).tolist()
    length = steps // epochs
    orders = [np.concatenate(drawn[begin : begin + length]) for begin in range(0, steps, length)]
    assert all(sorted(order) == list(range(samples)) for order in orders)
    assert all(len(rows) == batch for rows in drawn[: length - 1])
    if samples > 20 and epochs > 1:
        assert not np.array_equal(orders[0], orders[1])


def test_an_objectives_own_steps_or_epochs_go_first() -> None:
    assert local_steps(23, 5, 7, None, {}) == (23, 5, 7, None)
    assert local_steps(23, 5, 7, 2, {"local_steps": 3}) == (23, 5, 3, None)
    assert local_steps(23, 5, 7, None, {"local_epochs": 2}) == (23, 5, 10, 2)


def in_epochs(family: str, counts: list[int], **changes: Any) -> float:
    return both_ways(
        FAMILIES[family], counts, steps=[2 * -(-count // 5) for count in counts], local_epochs=2, **changes
    )


@pytest.mark.parametrize("family", ["nasbench201", "vit"])
def test_a_cohort_with_last_batches_of_its_own_is_exact(family: str) -> None:
    assert in_epochs(family, [23, 20, 12, 3]) < 1e-9


def test_dropout_and_exits_are_exact_too() -> None:
    counts = [23, 20, 12, 3]
    spec = exits("cnn", dropout=0.4)
    steps = [2 * -(-count // 5) for count in counts]
    settings: dict[str, Any] = {"local_epochs": 2, "client_optimizer": "adam", "adam_eps": 1e-4}
    assert both_ways(lambda: models.build(spec), counts, trainer=MultiExitClient, steps=steps, **settings) < 1e-9


def test_adam_and_factored_layers_are_exact_too() -> None:
    assert in_epochs("cnn", [23, 20, 12, 3], client_optimizer="adam", learning_rate=0.01) < 1e-9
    assert in_epochs("cnn", [23, 20, 12, 3], factored=True) < 1e-9


def test_a_mapped_network_takes_clients_whose_batches_agree() -> None:
    assert in_epochs("odd", [23, 23]) < 1e-9


def test_the_clock_counts_the_samples_that_are_seen() -> None:
    sizes = np.array([23, 4, 10])
    by_epochs = Task((1, 8, 8), 4, sizes, sizes, 7, 5, local_epochs=2)
    assert by_epochs.samples_seen(np.array([0, 2])).tolist() == [46, 20]
    by_steps = Task((1, 8, 8), 4, sizes, sizes, 7, 5)
    assert by_steps.samples_seen(np.array([0, 1])).tolist() == [35, 28]
    for client in (1, 2, 3):
        for task in (by_steps, by_epochs):
            assert task.step_sizes(client, {}).sum() == task.samples_seen(np.array([client - 1]))[0]


def test_a_jobs_macs_are_those_of_all_samples(job_file: Path) -> None:
    text = job_file.read_text().replace("  - local_steps: 2\n", "")
    job_file.write_text(text)
    keys = {"model": "cnn_small", "num_participants": 7, "local_epochs": 2, "cohort_size": 7, "unit_size": 7}
    summary = fedscale_ext.run(job_file, rounds=1, job_name="epochs", **keys)
    (entry,) = result(job_file.parent / "logs" / "epochs" / "logs")["rounds"]
    assert entry["failed"] == {} and entry["participants"] == [1, 2, 3, 4, 5, 6, 7]
    sizes = [24, 20, 16, 12, 28, 3, 1]  # of 30, 25, 20, 15, 35, 4 and 1, a fifth is held out
    assert entry["forward_macs"] == 2 * sum(sizes) * summary["models"][0]["cost"]["forward_macs"]
    assert len(set(entry["client_durations_s"])) == 7


@pytest.mark.parametrize(
    ("keys", "method", "sentence"),
    [
        ({"local_epochs": 2, "local_steps": 5}, FedAvgAggregator, "local_epochs and local_steps are both given"),
        ({"client_optimizer": "adam"}, QFedAvgAggregator, "which reads a client's update as a sum of its gradients"),
        ({"client_optimizer": "adam", "client_momentum": 0.5}, FedAvgAggregator, "client_momentum is of SGD"),
        ({"adam_beta1": 0.5}, FedAvgAggregator, "adam_beta1 needs client_optimizer: adam"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(keys: dict[str, Any], method: type, sentence: str) -> None:
    with pytest.raises(UserError) as raised:
        check_local_training(make_config({}, keys), method)
    assert sentence in str(raised.value) and "\n" not in str(raised.value)


def test_no_epoch_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="'local_epochs' is 0"):
        make_config({}, {"local_epochs": 0})
