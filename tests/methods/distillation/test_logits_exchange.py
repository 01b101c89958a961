"""Servers of clients that keep their models: what is told, what counts as traffic and work, what a checkpoint holds."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.distillation.logits_exchange import LogitsExchangeAggregator
from fedscale_ext.methods.distillation.public_models import SERVER
from fedscale_ext.server.announcements import ModelChoice
from fedscale_ext.server.eligibility import weakest_cost
from fedscale_ext.server.method_base.requirements import check_local_training
from fedscale_ext.server.privacy import check_options
from fedscale_ext.tasks.client_tensors import ClientState
from fedscale_ext.transport.wire import bytes_to_tensors
from methods.harness import CLASSES, SHAPE, equal, pool_states

from .public import PUBLIC, TYPES, new_aggregator, play, samples

QUICK: dict[str, dict[str, Any]] = {
    "fedmd": {"samples": 5, "pretrain_epochs": 3, "private_epochs": 4, "digest_batch": 4},
    "dsfl": {"samples": 5, "epochs": 1},
    "fedgems": {"server_epochs": 1},
}
SAMPLE = 4 * SHAPE[0] * SHAPE[1] * SHAPE[2]


def handed_out(aggregator: Any) -> dict[str, torch.Tensor]:
    (section,) = aggregator.shared.sections([]).values()
    return bytes_to_tensors(section)


@pytest.mark.parametrize("method", QUICK)
def test_what_is_told_belongs_to_the_rows_of_the_last_round(method: str, tmp_path: Path) -> None:
    aggregator = new_aggregator(method, tmp_path, **QUICK[method])
    play(aggregator, 1)
    first = handed_out(aggregator)
    assert "target" not in first and torch.equal(first["x"], samples().x)
    play(aggregator, 2)
    second = handed_out(aggregator)
    assert torch.equal(second["rows"], first["asked"]) and second["target"].shape == (len(first["asked"]), CLASSES)
    if method != "fedgems":
        assert len(first["asked"]) == 5 and not torch.equal(first["asked"], second["asked"])


@pytest.mark.parametrize("method", QUICK)
def test_traffic_is_public_samples_once_and_logits(method: str, tmp_path: Path) -> None:
    aggregator = new_aggregator(method, tmp_path, **QUICK[method])
    num_rows = 5 if method != "fedgems" else PUBLIC
    label = 0 if method == "dsfl" else 8  # bytes; its clients learn from none
    logits, public = 4 * CLASSES * num_rows, PUBLIC * (SAMPLE + label)
    assert all(
        (aggregator.download_bytes(item), aggregator.upload_bytes(item)) == (public, logits)
        for item in play(aggregator, 1, [1, 2, 4])
    )
    later = {item.client: item for item in play(aggregator, 2)}
    assert {aggregator.download_bytes(later[client]) for client in (1, 2, 4)} == {logits}
    assert {aggregator.download_bytes(later[client]) for client in (3, 5, 6)} == {logits + public}


@pytest.mark.parametrize("method", QUICK)
def test_a_deadline_counts_the_logits_of_a_later_round(method: str, tmp_path: Path) -> None:
    aggregator = new_aggregator(method, tmp_path, public_samples=2 * PUBLIC, public_fraction=0.5, **QUICK[method])
    play(aggregator, 1)
    (later,) = play(aggregator, 2, [1])
    cost = weakest_cost(aggregator)
    assert cost.bytes == aggregator.download_bytes(later) == aggregator.upload_bytes(later)
    assert cost.training_macs == models.cost(aggregator.smallest_spec()).training_macs


@pytest.mark.parametrize("method", QUICK)
def test_the_next_items_are_what_the_next_round_takes(method: str, tmp_path: Path) -> None:
    aggregator = new_aggregator(method, tmp_path, **QUICK[method])
    for round, participants in enumerate(([1, 2, 4], range(1, 7)), 1):
        aggregator.round = round - 1
        expected = [item for item in aggregator.next_items() if item.client in participants]
        assert play(aggregator, round, participants) == expected


def test_work_on_public_samples_counts(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedmd", tmp_path, **QUICK["fedmd"])
    items = {item.client: item for item in play(aggregator, 1)}
    seen = aggregator.task.step_sizes(2, {"local_epochs": 4}).sum()
    assert seen == 4 * 20 and items[2].overrides["local_epochs"] == 4
    assert items[2].compute_fraction == pytest.approx(1 + 3 * PUBLIC / seen) and items[2].forward_fraction == 5 / seen
    later = {item.client: item for item in play(aggregator, 2)}
    seen = aggregator.task.step_sizes(2, {}).sum()
    assert later[2].compute_fraction == pytest.approx(1 + 5 / seen) and later[2].forward_fraction == 5 / seen
    assert "local_epochs" not in later[2].overrides
    assert [each["loss"] for each in items[2].objective["public"]] == ["labels", "mae"]
    assert [each["loss"] for each in later[2].objective["public"]] == ["mae"]


@pytest.mark.parametrize("method", QUICK)
def test_clients_are_served_their_own_models_and_the_pools_stay(method: str, tmp_path: Path) -> None:
    aggregator = new_aggregator(method, tmp_path, **QUICK[method])
    before = pool_states(aggregator)
    play(aggregator, 1)
    plan = aggregator.evaluation_plan()
    assert plan.serve == [f"{TYPES[0]}@own"] * 3 + [f"{TYPES[1]}@own"] * 3
    assert plan.named == ({} if method == "fedmd" else {SERVER: SERVER})
    for key in before:
        assert equal(before[key], aggregator.pool[key].state) == (key != SERVER)
    template = aggregator.client_tensors_by_kind[ClientState.kind].template(TYPES[1])
    assert template.keys() == before[TYPES[1]].keys()


@pytest.mark.parametrize("method", QUICK)
def test_a_checkpoint_holds_all_that_the_rounds_after_it_need(method: str, tmp_path: Path) -> None:
    unbroken, broken, resumed = (new_aggregator(method, tmp_path / name, **QUICK[method]) for name in "abc")
    play(unbroken, 1, [1, 4])
    items = play(unbroken, 2)
    play(broken, 1, [1, 4])
    for model in broken.pool:
        resumed.pool.update(model.key, model.state)
    tensors, data = broken.state()
    resumed.load_state({name: each.clone() for name, each in tensors.items()}, data)
    assert play(resumed, 2) == items
    assert torch.equal(unbroken.target, resumed.target) and torch.equal(unbroken.rows, resumed.rows)
    assert equal(handed_out(unbroken), handed_out(resumed))
    if method != "fedmd":
        assert equal(unbroken.pool[SERVER].state, resumed.pool[SERVER].state)


def test_a_type_that_is_called_as_the_servers_model_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(LogitsExchangeAggregator, "keys", [SERVER, "lenet_6k"])
    with pytest.raises(UserError, match="a type is called 'server', as the server's own model is; rename"):
        new_aggregator("dsfl", tmp_path)


@pytest.mark.parametrize("method", ["fedmd", "dsfl", "fedgems", "feddf", "fedet"])
def test_noise_does_not_shield_logits(method: str) -> None:
    from fedscale_ext.config.methods import method_class

    config = make_config({}, {"method": method, "dp_noise_multiplier": 1.0})
    with pytest.raises(UserError, match=f"method {method} learns from the logits of .*; choose a method that averages"):
        check_options(config, method_class(method))


@pytest.mark.parametrize(("key", "value"), [("control_variates", True), ("max_update_norm", 3.0)])
def test_what_reads_a_clients_change_as_its_training_is_refused(key: str, value: Any) -> None:
    config = make_config({}, {"method": "fedmd", key: value})
    with pytest.raises(
        UserError, match=f"{key} needs clients that .* fedmd trains models that its clients keep; remove {key}"
    ):
        check_local_training(config, LogitsExchangeAggregator)


@pytest.mark.parametrize(("method", "travel"), [("fedmd", False), ("feddf", True)])
def test_the_deadline_of_models_that_do_not_travel_is_left_to_the_rounds(
    method: str, travel: bool, tmp_path: Path
) -> None:
    aggregator, judged = new_aggregator(method, tmp_path), []
    aggregator.deadline = SimpleNamespace(assigned=lambda *arguments: judged.append(arguments))
    aggregator.report_assignment(
        [ModelChoice("a", aggregator.pool[aggregator.keys[0]].cost)], np.zeros(6, dtype=np.int64)
    )
    assert bool(judged) == travel
