"""Whole jobs with differential privacy."""

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import load_config, make_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.events import Emit, ignore_event
from fedscale_ext.core.streams import stream
from fedscale_ext.data.importing.importers import import_npz
from fedscale_ext.data.importing.options import NpzOptions
from fedscale_ext.driver.progress import Display
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.fedtrans.aggregator import FedTransAggregator
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.population.availability import Availability
from fedscale_ext.population.population import Population
from fedscale_ext.population.selection.participants import select_each
from fedscale_ext.population.traces.columns import AvailabilityTrace
from fedscale_ext.privacy.accounting import Accountant
from fedscale_ext.report.job.tables import summary_table
from fedscale_ext.server.eligibility import online_clients
from fedscale_ext.server.privacy import JobPrivacy, check_options
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks.answers.update_checks import Rejected, checked_num_unclipped, checked_sum
from fedscale_ext.tasks.reduction import ModelMean, UnitSum
from fedscale_ext.transport import wire
from server.test_jobs import FEDTRANS, assert_equal, command, in_process
from tests.methods.harness import server

NOISE = {"dp_noise_multiplier": 1.0, "dp_clip_norm": 0.5}
CHANGES = {"w": torch.full((4,), 1.0)}  # two long


def lines(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(summary["log_dir"]) / "metrics.jsonl").read_text().splitlines()]


def final(summary: dict[str, Any]) -> dict[str, torch.Tensor]:
    return load_model(Path(summary["log_dir"]) / "models" / "global.safetensors")[1]


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    floating = [name for name, tensor in one.items() if tensor.is_floating_point()]
    return float(sum((one[name].double() - other[name].double()).square().sum() for name in floating)) ** 0.5


def privacy(clients: int = 1000, participants: int = 100, **keys: Any) -> JobPrivacy:
    config = make_config({}, {"dp_noise_multiplier": 1.0, "num_participants": participants, **keys})
    return JobPrivacy(config, np.ones(clients, dtype=bool), np.ones(clients, dtype=bool), "")


def test_coins_are_independent_and_of_the_asked_probability() -> None:
    online = np.arange(1000) % 2 == 0
    drawn = [select_each(online, 0.1, stream("coins", round)) for round in range(200)]
    assert all((clients % 2 == 1).all() and (np.diff(clients) > 0).all() for clients in drawn)
    sizes = np.array([len(clients) for clients in drawn])
    assert sizes.mean() == pytest.approx(50, abs=2)
    assert sizes.var() == pytest.approx(45, rel=0.4)  # 500 coins: a fixed size would have none
    # whether one is eligible moves nobody else's coin
    less = online.copy()
    less[drawn[0][0] - 1] = False
    assert select_each(less, 0.1, stream("coins", 0)).tolist() == drawn[0][1:].tolist()


def test_a_job_tells_epsilon_in_each_round_the_summary_and_the_display(job_file: Path) -> None:
    events: list[dict[str, Any]] = []
    summary = run(job_file, events.append, **NOISE, rounds=3)
    expected = Accountant(1.0, 1e-5, 4 / 7)
    rounds = lines(summary)
    assert [line["privacy"]["epsilon"] for line in rounds] == [expected.epsilon(number) for number in (1, 2, 3)]
    assert (
        {line["privacy"]["clip_norm"] for line in rounds} == {line["privacy"]["noise_std"] for line in rounds} == {0.5}
    )
    assert summary["privacy"]["epsilon"] == expected.epsilon(3)
    rows = dict(summary_table(summary))
    assert f"epsilon {expected.epsilon(3):.3g} at delta 1e-05" in rows["privacy"]
    assert "losses" in rows["  not covered"] and "secret" in rows["  assumes"]
    notice = next(event["message"] for event in events if event["event"] == "notice" and "epsilon" in event["message"])
    assert f"epsilon {expected.epsilon(3):.3g} at the end" in notice
    screen = io.StringIO()
    display = Display(Console(file=screen, width=200), Console(file=io.StringIO()))
    for event in events:
        display.event(event)
    assert f"epsilon {expected.epsilon(3):.3g}" in screen.getvalue()


def run(job_file: Path, emit: Emit = ignore_event, **keys: Any) -> dict[str, Any]:
    return run_in_process(load_config(job_file, [f"{key}={value}" for key, value in keys.items()]), emit)


def test_without_the_option_nothing_changes(job_file: Path) -> None:
    summary = fedscale_ext.run(job_file)
    assert summary["privacy"] is None
    assert {line["privacy"] for line in lines(summary)} == {None}
    assert "privacy" not in dict(summary_table(summary))


def test_one_clients_data_moves_a_released_model_by_no_more_than_two_norms(job_file: Path, tmp_path: Path) -> None:
    """The whole pipeline: other data of the same size at one client, the same noise, one round."""
    folders = []
    for version in range(2):
        rng = np.random.default_rng(7)
        client = np.repeat(np.arange(6), 12)
        x, y = rng.integers(0, 255, (72, 28, 28)).astype(np.uint8), rng.integers(0, 4, 72)
        if version:
            x[client == 2], y[client == 2] = 255 - x[client == 2], 3 - y[client == 2]
        np.savez(tmp_path / f"v{version}.npz", x=x, y=y, client=client)
        folders.append(tmp_path / f"v{version}")
        import_npz(tmp_path / f"v{version}.npz", folders[-1], "femnist", NpzOptions(name="generated"))
    for clip in (0.05, 0.5):
        keys = {**NOISE, "dp_clip_norm": clip, "num_participants": 6, "rounds": 1, "cohort_size": 3}  # everybody is in
        one, other = (
            fedscale_ext.run(job_file, data_dir=str(folder), job_name=f"{folder.name}-{clip}", **keys)
            for folder in folders
        )
        assert lines(one)[0]["participants"] == lines(other)[0]["participants"] == [1, 2, 3, 4, 5, 6]
        assert 0.01 * clip / 6 < distance(final(one), final(other)) <= 2 * clip / 6 * (1 + 1e-3)


def test_a_private_mean_moves_by_no_more_than_the_norm_whatever_clients_have(job_file: Path) -> None:
    """Clients with more samples count no more than others: noise is made for one norm per client."""
    keys = {"dp_noise_multiplier": 1e-3, "dp_clip_norm": 0.01, "dp_accounting": "participation"}
    summary = run(job_file, **keys, model="cnn_small", num_participants=7, rounds=1)
    spec, state = load_model(Path(summary["log_dir"]) / "models" / "global.safetensors")
    moved = distance(state, models.initial_state(spec, summary["seed"]))
    assert 0.001 < moved <= 0.01 * (1 + 0.05)


def test_all_whom_the_coins_draw_count_however_many_they_are(job_file: Path) -> None:
    rounds = lines(run(job_file, **NOISE, model="cnn_small", rounds=4))
    assert max(len(line["participants"]) for line in rounds) > 4  # num_participants
    assert all(line["stragglers"] == 0 and line["selected"] == len(line["participants"]) for line in rounds)


def test_a_resumed_job_has_the_same_noise_norm_and_account(job_file: Path) -> None:
    keys = {**FEDTRANS, **NOISE, "dp_target_quantile": 0.5}
    unbroken = in_process(job_file, **keys, job_name="unbroken")
    in_process(job_file, **{**keys, "rounds": 3}, job_name="broken")
    resumed = in_process(job_file, **keys, job_name="broken", resume=True)
    for rounds in (unbroken["rounds"], resumed["rounds"]):
        del rounds[2]["evaluation"]
    assert_equal(unbroken, resumed)
    norms = [line["privacy"]["clip_norm"] for line in unbroken["rounds"]]
    assert len(set(norms)) == len(norms) == 6
    assert all(line["privacy"]["within"] is not None for line in unbroken["rounds"])


def test_clients_clip_to_the_norm_of_their_round(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise is made for the norm that follows the quantile: with another one, epsilon would not hold."""
    norms: list[float] = []
    plain = UnitSum.__init__

    def noted(self: UnitSum, start: Any, most: Any, clip_norm: float, spec: Any) -> None:
        norms.append(clip_norm)
        plain(self, start, most, clip_norm, spec)

    monkeypatch.setattr(UnitSum, "__init__", noted)
    summary = run(job_file, **NOISE, rounds=3, dp_target_quantile=0.5)
    assert list(dict.fromkeys(norms)) == [line["privacy"]["clip_norm"] for line in lines(summary)]


def test_counted_participations_survive_resuming(job_file: Path) -> None:
    keys = {**NOISE, "dp_accounting": "participation", "rounds": 5}
    unbroken = in_process(job_file, **keys, job_name="unbroken")
    in_process(job_file, **{**keys, "rounds": 2}, job_name="broken")
    resumed = in_process(job_file, **keys, job_name="broken", resume=True)
    del unbroken["rounds"][1]["evaluation"], resumed["rounds"][1]["evaluation"]
    assert_equal(unbroken, resumed)
    most = np.bincount(np.concatenate([line["participants"] for line in unbroken["rounds"]])).max()
    assert unbroken["rounds"][-1]["privacy"]["epsilon"] == Accountant(1.0, 1e-5, None).epsilon(int(most))


def test_executors_play_no_part_in_a_private_result(job_file: Path) -> None:
    keys = {**NOISE, "cohort_size": 3, "dp_target_quantile": 0.3, "method": "fedyogi", "rounds": 3}
    assert_equal(in_process(job_file, **keys), command(job_file, "slots3", **keys, worker_ips="localhost:[3]"))


def test_secret_noise_differs_from_run_to_run_and_is_kept_for_resuming(job_file: Path) -> None:
    keys = {**NOISE, "dp_noise": "secret", "num_participants": 7, "rounds": 2}
    one, other = (final(fedscale_ext.run(job_file, job_name=name, **keys)) for name in ("one", "other"))
    assert distance(one, other) > 0.01
    first, resumed = privacy(dp_noise="secret"), privacy(dp_noise="secret")
    assert first.key != resumed.key
    resumed.load_state(*first.state())
    assert resumed.key == first.key
    assert "key" not in privacy().state()[1]
    assert str(first.key) not in json.dumps(first.summary())


def test_a_round_without_anybody_is_noised_all_the_same(job_file: Path) -> None:
    for method in ({}, FEDTRANS):
        summary = fedscale_ext.run(
            job_file, **{**method, **NOISE, "num_participants": 1, "rounds": 8}, job_name=f"few{len(method)}"
        )
        rounds = lines(summary)
        empty = [line["round"] for line in rounds if not line["participants"]]
        assert empty and len(empty) < 8
        assert [line["privacy"]["epsilon"] for line in rounds] == sorted(
            {line["privacy"]["epsilon"] for line in rounds}
        )
        assert all(model["version"] >= len(empty) for model in summary["models"] if model["key"] in ("global", "m0"))


@pytest.mark.parametrize("accounting", ["sampling", "participation"])
def test_a_job_ends_before_the_round_that_would_cost_too_much(job_file: Path, accounting: str) -> None:
    keys = {**NOISE, "dp_epsilon": 9.0, "dp_accounting": accounting, "rounds": 40}
    summary = fedscale_ext.run(job_file, **keys)
    assert summary["rounds"] < 40
    assert summary["stopped"] == "the next round could exceed dp_epsilon 9"
    assert summary["privacy"]["epsilon"] <= 9
    assert summary["accuracy"]["round"] == summary["rounds"]  # a clean end: tested, and written
    if accounting == "participation":
        counts = np.bincount(np.concatenate([line["participants"] for line in lines(summary)]), minlength=8)[1:]
        assert set(counts.tolist()) == {Accountant(1.0, 1e-5, None).affordable(9.0)}  # everybody's budget is used up
    again = fedscale_ext.run(job_file, **keys, resume=True)
    assert again["rounds"] == summary["rounds"] and again["privacy"] == summary["privacy"]


def test_a_round_waits_for_a_client_that_is_both_able_and_allowed() -> None:
    trace = AvailabilityTrace(
        np.arange(2), np.array([0, 1, 2]), np.array([0.0, 500.0]), np.array([400.0, 900.0]), np.full(2, 1000.0)
    )
    population = Population(np.ones(2), np.ones(2), Availability(trace, 2), "test")
    both, second = np.array([True, True]), np.array([False, True])
    for able, allowed in ((second, both), (second, second), (both, second)):
        online, clock_s = online_clients(population, able, allowed, 0.0)
        assert (online.tolist(), clock_s) == ([False, True], 500.0)
    online, clock_s = online_clients(population, ~second, second, 0.0)  # nobody is both: a round of nobody
    assert (online.tolist(), clock_s) == ([False, False], 500.0)


def test_a_client_that_is_never_online_keeps_no_job_from_its_end(job_file: Path, tmp_path: Path) -> None:
    day = {"finish_time": 1000, "duration": 5, "model": "phone"}
    days = {n: {**day, "active": [0] if n < 7 else [], "inactive": [999] if n < 7 else []} for n in range(1, 8)}
    (tmp_path / "behave").write_bytes(pickle.dumps(days))
    keys = {**NOISE, "dp_epsilon": 9.0, "dp_accounting": "participation", "rounds": 40, "num_participants": 3}
    summary = fedscale_ext.run(job_file, device_avail_file=str(tmp_path / "behave"), **keys)
    assert summary["stopped"] == "the next round could exceed dp_epsilon 9"
    assert summary["accuracy"]["round"] == summary["rounds"] < 40


def test_each_model_is_divided_by_its_expected_clients_and_at_least_by_an_equal_share() -> None:
    pool = ModelPool()
    spec = models.named_spec("cnn_small", (1, 28, 28), 10)
    start = {"w": torch.zeros(20_000)}
    for key in ("many", "few", "nobody", "too_large"):
        pool.add(key, spec, start)
    sums = {}
    for key, clients in (("many", 75), ("few", 5)):
        sums[key] = ModelMean(start)
        sums[key].add({"w": torch.full((20_000,), 1e3 * clients)}, clients)
    shares = {"many": 0.8, "few": 0.05, "nobody": 0.15, "too_large": 0.0}
    means = privacy().release(1, range(1, 81), pool, sums, shares, 0, 80)
    assert means.keys() == {"many", "few", "nobody"}
    for key, clients, count in (("many", 75, 80), ("few", 5, 25), ("nobody", 0, 25)):
        noise = means[key]["w"].double() - 1e3 * clients / count
        assert float(noise.std()) == pytest.approx(1 / count, rel=0.03)  # sensitivity 1, multiplier 1
        assert float(noise.mean()) == pytest.approx(0, abs=0.03 / count)


def test_a_norm_that_adapts_is_paid_for_with_more_noise_and_rounds_have_their_own() -> None:
    """With less noise, or the same in two rounds, epsilon would not hold."""
    pool = ModelPool()
    pool.add("m", models.named_spec("cnn_small", (1, 28, 28), 10), {"w": torch.zeros(20_000)})
    job, noise, shares = privacy(dp_target_quantile=0.5), [], []
    for round in range(1, 101):
        mean = job.release(round, range(1, 61), pool, {}, {"m": 1.0}, 50, 60)["m"]["w"]  # 50 of 60 within the norm
        figures = job.figures()
        noise.append(mean.double() * 100 / figures["clip_norm"])
        shares.append(figures["within"])
    larger = (1 - (2 * 5) ** -2) ** -0.5  # 5: a twentieth of 100 participants
    assert figures["noise_std"] / figures["clip_norm"] == pytest.approx(larger, rel=1e-12)
    assert float(torch.stack(noise).std()) == pytest.approx(larger, rel=2e-3)
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 0.05
    assert np.mean(shares) == pytest.approx(0.7, abs=0.02)  # (50 - 60 / 2) / 100 + 1 / 2
    assert np.std(shares) == pytest.approx(0.05, rel=0.2)
    assert job.clip_norm == pytest.approx(np.exp(-0.2 * (np.sum(shares) - 100 * 0.5)))


def test_fedtrans_trains_privately_and_says_what_its_losses_tell(job_file: Path) -> None:
    summary = fedscale_ext.run(job_file, **FEDTRANS, **NOISE)
    assert len(summary["models"]) > 2
    assert "assigned to models" in summary["privacy"]["unprotected"]
    served = {model["key"]: model["version"] for model in summary["models"]}
    assert served["m0"] == 6


def test_fedtrans_expects_the_mean_of_its_clients_probabilities() -> None:
    aggregator = server(FedTransAggregator, "fedtrans")
    assert aggregator.expected_shares() == {"m0": 1.0}
    model = aggregator.pool["m0"]
    aggregator.pool.add("m1", model.spec, model.state)
    aggregator.utilities = np.array([[0.0, 0.0]] * 3 + [[0.0, -np.inf]] * 3)
    assert aggregator.expected_shares() == {"m0": 0.75, "m1": 0.25}


class SeesStates(FedAvgAggregator):
    reduces = False


@pytest.mark.parametrize(
    ("keys", "method", "sentence"),
    [
        ({"dp_clip_norm": 2.0}, FedAvgAggregator, "dp_clip_norm needs differential privacy: set dp_noise_multiplier"),
        (NOISE, SeesStates, "takes each client's model as it is"),
        ({**NOISE, "augment": "speech"}, FedAvgAggregator, "mixes clients' samples with other clients' silence"),
        ({**NOISE, "device_avail_file": "resampled"}, FedAvgAggregator, "set dp_accounting: participation"),
        ({**NOISE, "overcommitment": 1.3}, FedAvgAggregator, "set overcommitment: 1.0"),
    ],
)
def test_what_cannot_be_shielded_is_refused(keys: dict[str, Any], method: type, sentence: str) -> None:
    with pytest.raises(UserError) as raised:
        check_options(make_config({}, keys), method)
    assert sentence in str(raised.value) and "\n" not in str(raised.value)


def test_what_can_be_shielded_is_not_refused() -> None:
    assert not check_options(make_config({}, {}), SeesStates)
    assert check_options(make_config({}, NOISE), FedAvgAggregator)
    public = {**NOISE, "dp_accounting": "participation", "device_avail_file": "resampled", "overcommitment": 1.3}
    assert check_options(make_config({}, public), FedAvgAggregator)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"dp_delta": 0.001}, "not below 1 / 1000 clients"),
        ({"dp_epsilon": 1e-3}, "does not pay for one round, which costs"),
    ],
)
def test_a_promise_that_is_none_or_cannot_be_kept_is_refused(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        privacy(**keys)


def test_an_executor_that_did_not_clip_is_found_out() -> None:
    section, start = wire.tensors_to_bytes(CHANGES), {name: torch.zeros_like(one) for name, one in CHANGES.items()}
    assert checked_num_unclipped(2, 2) == 2
    checked_sum(section, start, start, 2.0, 1.0)
    for count in (3, -1, True, None):
        with pytest.raises(Rejected, match="clipping norm"):
            checked_num_unclipped(count, 2)
    for clients, clip_norm in ((2.0, 0.99), (1.0, 1.5)):
        with pytest.raises(Rejected, match="longer"):
            checked_sum(section, start, start, clients, clip_norm)
