"""FLuID: what is invariant, what is dropped, who is slow; its hooks; and in jobs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from job_results import assert_equal, result

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.method_params import make_params
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.core.types import State
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.submodel import invariant_dropout
from fedscale_ext.methods.submodel.fluid import FluidAggregator, FluidParams
from fedscale_ext.population.population import Population
from fedscale_ext.server import aggregator as runtime
from fedscale_ext.submodels import count_mean, widths_at
from methods.harness import equal, play, pool_states, server, trained, updates_for

FULL = models.named_spec("cnn_small", (1, 28, 28), 62)
BASE = models.named_spec("nasbench201_base", (1, 8, 8), 5)


def macs_at(rate: float, spec: models.ModelSpec = BASE) -> float:
    return float(models.cost(models.resized(spec, widths_at(spec, rate))).forward_macs)


# ---- the mathematics ----


def test_relative_change_of_weights_that_are_zero() -> None:
    before, after = torch.tensor([0.0, 0.0, 2.0, -4.0, 1.0]), torch.tensor([0.0, 0.1, 3.0, -5.0, 1.0])
    assert invariant_dropout.relative_change(before, after).tolist() == [0.0, float("inf"), 0.5, 0.25, 0.0]


def test_a_neurons_change_is_the_largest_of_its_weights_in_bias_and_out() -> None:
    before: State = {name: torch.ones_like(value) for name, value in models.initial_state(FULL, 1).items()}
    after = {name: value.clone() for name, value in before.items()}
    after["conv1.weight"][2, 0, 1, 1] = 1.5  # into neuron 2 of conv1
    after["conv1.bias"][3] = 0.75
    after["conv2.weight"][5, 4, 0, 0] = 3.0  # out of neuron 4 of conv1, into neuron 5 of conv2
    after["linear1.weight"][6, 49 * 7 + 48] = 1.25  # out of neuron 7 of conv2: the last place of its map
    after["linear2.weight"][9, 8] = 0.0  # out of neuron 8 of linear1; classes are no neurons
    neuron_changes = invariant_dropout.neuron_changes(FULL, before, after)
    expected = {"conv1": {2: 0.5, 3: 0.25, 4: 2.0}, "conv2": {5: 2.0, 7: 0.25}, "linear1": {6: 0.25, 8: 1.0}}
    assert {group: len(changes) for group, changes in neuron_changes.items()} == {
        "conv1": 16,
        "conv2": 32,
        "linear1": 28,
    }
    for group, changes in neuron_changes.items():
        assert {index: changes[index] for index in np.flatnonzero(changes)} == expected[group]


def test_buffers_do_not_count_and_batchnorms_scale_does() -> None:
    before: State = {name: torch.ones_like(value) for name, value in models.initial_state(BASE, 1).items()}
    after = {name: value.clone() for name, value in before.items()}
    after["stem.bn.running_mean"][1] = 9.0
    after["stem.bn.weight"][2] = 2.0
    (stem,) = [np.flatnonzero(one) for group, one in invariant_dropout.neuron_changes(BASE, before, after).items()
               if group == "stem"]  # fmt: skip
    assert stem.tolist() == [2]


CHANGES = np.array([[0.1, 0.5, 0.2, 9.0], [0.1, 0.5, 0.2, 9.0], [0.1, 0.1, 0.2, 9.0], [0.3, 0.1, 0.3, 9.0]])


def test_invariant_is_what_three_quarters_of_clients_hardly_change() -> None:
    assert invariant_dropout.invariant(CHANGES, 0.2, 0.75).tolist() == [True, False, True, False]
    assert invariant_dropout.invariant(CHANGES, 0.1, 0.75).tolist() == [True, False, False, False]
    assert invariant_dropout.invariant(CHANGES, 0.1, 0.5).tolist() == [True, True, False, False]
    assert invariant_dropout.invariant(CHANGES, 0.3, 1.0).tolist() == [True, False, True, False]


def test_the_least_change_is_a_neurons_whose_largest_over_clients_is_least() -> None:
    assert invariant_dropout.least_change(CHANGES) == 0.3
    assert invariant_dropout.least_change(np.array([[np.inf, 4.0], [0.0, 2.0]])) == 4.0
    assert invariant_dropout.least_change(np.full((2, 3), np.inf)) is None


def test_thresholds_begin_at_the_least_change_then_at_its_mean_and_grow_while_too_few() -> None:
    def after(threshold: float, observed: int, least: float | None, few: bool = True) -> float:
        return invariant_dropout.next_threshold(threshold, observed, least, few, 0.25, 2)

    assert after(0.0, 1, 3.0) == 3.0
    assert after(3.0, 2, 1.0) == 2.0
    assert after(2.0, 3, 9.0) == 2.0  # not every round
    assert after(2.0, 4, 9.0) == 2.25
    assert after(2.0, 4, 9.0, few=False) == 2.0
    assert after(3.0, 2, None) == 3.0  # and never infinite


def test_dropped_are_neurons_invariant_twice_then_once_then_any() -> None:
    before, now = (np.isin(np.arange(10), places) for places in ([1, 2, 3], [2, 3, 4, 5]))

    def dropped(count: int, draw: int = 0) -> set[int]:
        widths, channels = {"g": 10 - count}, {"g": 10}
        remaining = invariant_dropout.remaining_channels(widths, channels, {"g": before}, {"g": now}, stream(draw))["g"]
        assert remaining.tolist() == sorted(set(remaining.tolist())) and len(remaining) == 10 - count
        return set(range(10)) - set(remaining.tolist())

    assert dropped(2) == {2, 3}
    assert {2, 3} < dropped(3) < {2, 3, 4, 5}
    assert dropped(4) == {2, 3, 4, 5}
    assert {2, 3, 4, 5} < dropped(6)
    assert len({frozenset(dropped(1, draw)) for draw in range(20)}) == 2  # random among its likes
    assert len({frozenset(dropped(5, draw)) for draw in range(40)}) == 6  # 1 was invariant once: like any other
    assert dropped(0) == set()


def test_a_client_gets_the_largest_rate_that_fits() -> None:
    rates = invariant_dropout.affordable_rates(np.array([99, 100, 80, 79, 20, 19.0]), 100.0, {0.9: 80.0, 0.5: 20.0})
    assert rates.tolist() == [0.9, 1.0, 0.9, 0.5, 0.5, 0.5]


def test_the_slowest_get_the_rate_nearest_to_their_times_ratio() -> None:
    def rates(seconds: list[float], before: tuple[int, ...] = (), share: float = 0.2) -> list[float]:
        slow = np.isin(np.arange(len(seconds)), before)
        return invariant_dropout.timed_rates(
            np.array(seconds), slow, (0.95, 0.85, 0.75, 0.65, 0.5), share, 1.15
        ).tolist()

    assert rates([10.0, 14.0, 9.0, 1.0, 2.0]) == [1, 0.75, 1, 1, 1]  # 10 / 14 = 0.71
    assert rates([10.0, 99.0]) == [1, 0.5]
    assert rates([10.0, 11.0]) == [1, 1]  # not 1.15 times as slow
    assert rates([10.0, 11.0], before=(1,)) == [1, 0.95]  # but it was one before
    assert rates([10.0, 10.0], before=(1,)) == [1, 1]
    assert rates([10.0, 20.0, 12.0], share=0.67) == [1, 0.5, 0.85]
    assert rates([10.0, 20.0], share=1.0) == [1, 0.5]  # never all
    assert rates([7.0]) == [1] and rates([]) == []


# ---- the hooks ----


def slow_fluid(clients: int = 6, slow: tuple[int, ...] = (2, 5), **keys: Any) -> Any:
    """Clients ``slow`` afford p = 0.5, the others everything."""
    capacity = [macs_at(0.5) if client in slow else 1e15 for client in range(1, clients + 1)]
    return server(FluidAggregator, "fluid", clients=clients, capacity=capacity, **keys)


def one_round(aggregator: Any, round: int, scale: float = 0.05, participants: Any = None) -> dict[int, State]:
    """What the runtime does with a round; the clients' states."""
    aggregator._internals = {}
    items = aggregator.assign(round, np.array(participants or range(1, aggregator.task.num_clients + 1)))
    updates, states = updates_for(aggregator, items), {}
    for update in updates:
        states[update.client] = trained(aggregator.pool[update.item.model].state, round, update.client, scale=scale)
        aggregator.collect(round, update, states[update.client])
    aggregator.aggregate(round, updates, {})
    return states


def test_with_all_clients_able_it_is_fedavg() -> None:
    aggregator, plain = server(FluidAggregator, "fluid"), server(FedAvgAggregator, "fedavg")
    assert [model.key for model in aggregator.pool] == ["global"]
    for number in (1, 2, 3):
        one_round(aggregator, number)
        play(plain, number)
        for name, value in aggregator.pool["global"].state.items():
            torch.testing.assert_close(value, plain.pool["global"].state[name], rtol=1e-6, atol=1e-7)
    plan = aggregator.evaluation_plan()
    assert list(plan.serve) == ["global"] * 6 and plan.named == {"global": "global"}


def test_entries_are_averaged_over_those_who_trained_them() -> None:
    aggregator = slow_fluid()
    start = pool_states(aggregator)["global"]
    items = aggregator.assign(1, np.arange(1, 7))
    covered = aggregator.pool["p0.5"].part.covered
    updates = updates_for(aggregator, items)
    weighted = []
    for update in updates:
        state = trained(aggregator.pool[update.item.model].state, 1, update.client)
        aggregator.collect(1, update, state)
        weighted.append((state, covered if update.client in (2, 5) else None, 10.0 * update.client))
    aggregator.aggregate(1, updates, {})
    assert [item.model for item in items] == ["global", "p0.5", "global", "global", "p0.5", "global"]
    expected = count_mean(start, weighted)
    assert equal(aggregator.pool["global"].state, expected)
    assert [key for key, state in pool_states(aggregator).items() if equal(state, start)] == []
    assert list(aggregator.evaluation_plan().serve) == [item.model for item in items]


def test_the_submodel_leaves_out_what_others_did_not_change() -> None:
    aggregator = slow_fluid(rates="capacity")
    still = {"stem": 3, "reductions.0": 5}  # channels that stay as they are for everybody
    layout = models.layout(BASE)
    for number in (1, 2):
        items = aggregator.assign(number, np.arange(1, 7))
        updates = updates_for(aggregator, items)
        for update in updates:
            model = aggregator.pool[update.item.model]
            state = trained(model.state, number, update.client)
            if model.part is None:
                for name, value in state.items():
                    for dim, axis in enumerate(layout[name]):
                        if axis is not None and axis.group in still:
                            before = model.state[name].select(dim, still[axis.group])
                            value.select(dim, still[axis.group]).copy_(before)
            aggregator.collect(number, update, state)
        aggregator.aggregate(number, updates, {})
    assert aggregator.thresholds["stem"] == aggregator.thresholds["reductions.0"] == 0.0
    assert np.flatnonzero(aggregator.now["stem"]).tolist() == [3]
    assert np.flatnonzero(aggregator.now["reductions.0"]).tolist() == [5]
    aggregator.assign(3, np.arange(1, 7))
    channels = aggregator.pool["p0.5"].part.channels
    assert {group: len(indices) for group, indices in channels.items()} == widths_at(BASE, 0.5)
    assert 3 not in channels["stem"] and 5 not in channels["reductions.0"]


def test_round_one_shows_nothing_and_drops_at_random() -> None:
    aggregator = slow_fluid()
    first = {group: indices.tolist() for group, indices in aggregator.pool["p0.5"].part.channels.items()}
    one_round(aggregator, 1)
    assert aggregator.observed == 0 and not aggregator.now
    one_round(aggregator, 2)
    assert aggregator.observed == 1 and set(aggregator.now) == set(first)
    assert all(one.any() for one in aggregator.now.values())  # the threshold is the least neuron's change
    again = {group: indices.tolist() for group, indices in aggregator.pool["p0.5"].part.channels.items()}
    assert again != first


def test_rounds_of_stragglers_alone_keep_what_was_invariant() -> None:
    aggregator = slow_fluid()
    for number in (1, 2):
        one_round(aggregator, number)
    seen = {group: one.copy() for group, one in aggregator.now.items()}
    one_round(aggregator, 3)
    assert all(np.array_equal(aggregator.before[group], one) and one.any() for group, one in seen.items())
    seen = {group: one.copy() for group, one in aggregator.now.items()}
    one_round(aggregator, 4, participants=[2, 5])
    assert aggregator.observed == 2 and all(np.array_equal(aggregator.now[group], one) for group, one in seen.items())
    alone = slow_fluid(clients=2, slow=(1, 2))
    for number in (1, 2, 3):
        one_round(alone, number)
    assert alone.observed == 0 and not alone.now


def test_thresholds_grow_while_too_few_neurons_are_invariant() -> None:
    aggregator, easy = slow_fluid(increment=1.0), slow_fluid(increment=1.0, slow=())
    seen = []
    for number in range(1, 7):
        one_round(aggregator, number)
        one_round(easy, number)
        seen.append(dict(aggregator.thresholds))
    assert all(seen[4][group] == seen[2][group] + 1.0 for group in seen[4])  # the fourth that was looked at
    assert seen[3] == seen[2] and seen[5] == seen[4]
    recorded = aggregator._internals["invariant"]
    assert {group: np.flatnonzero(one).tolist() for group, one in aggregator.now.items()} == recorded
    # without stragglers there are never too few
    assert easy.observed == 5 and all(
        easy.thresholds[group] == pytest.approx(seen[2][group], rel=0.9) for group in seen[2]
    )


def test_who_affords_no_submodel_is_named_and_gets_the_smallest() -> None:
    aggregator = server(FluidAggregator, "fluid", capacity=[1.0, 1e15, macs_at(0.5), 5.0, macs_at(0.75), 1e15])
    assert aggregator.rate.tolist() == [0.5, 1.0, 0.5, 0.5, 0.75, 1.0]
    event, gives = aggregator.events
    assert gives["message"].startswith("fluid gives 2 of 6 clients the whole model (")
    assert ", 1 rate 0.75 (" in gives["message"] and ", 3 rate 0.5 (" in gives["message"]
    assert event["message"].startswith("2 of 6 clients afford less than the ")
    assert event["message"].endswith("they would train it all the same: 1, 4")
    assert [model.key for model in aggregator.pool] == ["global", "p0.5", "p0.75"]


def test_by_time_the_slowest_participants_train_less_from_round_two() -> None:
    aggregator = server(FluidAggregator, "fluid", rates="time", share=0.34, capacity=[1.0] * 6)  # whatever they afford
    aggregator.population = Population(np.array([10.0, 10, 30, 10, 16, 10]), np.full(6, 1e9), None, "test")
    aggregator.task.train_sizes[:] = 50
    assert {item.model for item in aggregator.assign(1, np.arange(1, 7))} == {"global"}
    served = [item.model for item in aggregator.assign(2, np.arange(1, 7))]
    assert served == ["global", "global", "p0.5", "global", "p0.65", "global"]
    aggregator.assign(3, np.array([3, 5]))  # between the two, 5 is the fast one
    assert aggregator.rate.tolist() == [1, 1, 0.5, 1, 1, 1]
    assert aggregator.evaluation_plan().serve == ["global"] * 6  # whatever they afford


def test_by_time_clients_that_do_not_afford_the_whole_model_are_counted_and_told() -> None:
    whole = float(models.cost(BASE).forward_macs)
    capacity = [whole, whole / 2, 1.0, whole, 2 * whole, whole]
    aggregator = server(FluidAggregator, "fluid", rates="time", capacity=capacity)
    assert aggregator.beyond_capacity == 2
    assert any("2 of 6 clients do not afford the whole model" in text for text in aggregator.notices)
    assert server(FluidAggregator, "fluid", rates="time", capacity=[whole] * 6).beyond_capacity == 0


def test_inference_is_global_by_time_and_within_capacity_by_capacity_unless_asked_otherwise() -> None:
    serve = {
        (rates, inference): slow_fluid(rates=rates, **({"inference": inference} if inference else {}))
        for rates in ("capacity", "time")
        for inference in (None, "submodel", "global")
    }
    for (rates, inference), aggregator in serve.items():
        aggregator.rate[:] = [1, 0.5, 1, 1, 0.5, 1]
        whole = inference == "global" or (rates, inference) == ("time", None)
        slow = "global" if whole else "p0.5"
        assert aggregator.evaluation_plan().serve == ["global", slow, "global", "global", slow, "global"]


@pytest.mark.parametrize(
    "keys", [{"p": ()}, {"p": (1.0,)}, {"p": (0.5, 0.0)}, {"p": (0.5, 0.75, 0.5)}, {"p": (0.5, 0.5000001)}, {"vote": 0},
             {"share": 1.5}, {"increment": -1}, {"every": 0}, {"hysteresis": 0.9}]
)  # fmt: skip
def test_hyperparameters_that_cannot_be_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"fluid.{next(iter(keys))} is"):
        make_params(FluidParams, make_config({}, {"method": "fluid", **{f"fluid.{name}": keys[name] for name in keys}}))


# ---- jobs ----

JOB = {"method": "fluid", "local_steps": 2, "num_participants": 5}


def run(job_file: Path, name: str, **keys: Any) -> dict[str, Any]:
    fedscale_ext.run(job_file, job_name=name, **{**JOB, **keys})
    return result(job_file.parent / "logs" / name / "logs")


def test_a_resumed_job_equals_an_unbroken_one(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = models.named_spec("nasbench201_base", (1, 28, 28), 62)
    capacity = np.array([1e15, macs_at(0.5, spec), 1e15, macs_at(0.75, spec), 1e15, 1e15, 0.0])
    monkeypatch.setattr(runtime, "device_capacities", lambda *_, **__: capacity)
    keys = {"rounds": 5, "eval_interval": 1, "bn_statistics": "federated"}
    unbroken = run(job_file, "unbroken", **keys)
    assert set(unbroken["models"]) == {"global", "p0.5", "p0.75"}
    assert len({key for entry in unbroken["rounds"] for key in entry["assignments"]}) == 3
    run(job_file, "broken", **{**keys, "rounds": 3})
    assert_equal(unbroken, run(job_file, "broken", **keys, resume=True))
    internals = job_file.parent / "logs" / "unbroken" / "logs" / "internals.jsonl"
    assert not internals.exists()
    sizes = unbroken["rounds"][-1]["evaluation"]["serve"]
    assert sizes == ["global", "p0.5", "global", "p0.75", "global", "global", "p0.5"]


def test_by_time_a_resumed_job_equals_an_unbroken_one(job_file: Path) -> None:
    keys = {"rounds": 4, "eval_interval": 1, "model": "cnn_small", "fluid.rates": "time", "record_internals": True}
    unbroken = run(job_file, "unbroken", **keys)
    lines = (job_file.parent / "logs" / "unbroken" / "logs" / "internals.jsonl").read_text().splitlines()
    assert set(json.loads(lines[-1])["thresholds"]) == {"conv1", "conv2", "linear1"}
    run(job_file, "broken", **{**keys, "rounds": 2})
    assert_equal(unbroken, run(job_file, "broken", **keys, resume=True))
    assert {key for entry in unbroken["rounds"][1:] for key in entry["assignments"]} - {"global"}


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"rounds": 2},
            "rounds is 2: which neurons are invariant counts from round 3 on, so this job drops them at random",
        ),
        (
            {"rounds": 5},
            "rounds is 5: thresholds grow after round 5 for the first time, so few neurons are invariant and most are "
            "dropped at random",
        ),
        ({"rounds": 6}, None),
        (
            {"rounds": 6, "every": 7},
            "rounds is 6: thresholds grow after round 8 for the first time, so few neurons are invariant and most are "
            "dropped at random",
        ),
        ({"rounds": 6, "every": 1}, None),
        ({"rounds": 6, "every": 7, "increment": 0}, None),  # thresholds never grow
        ({"rounds": 2, "slow": ()}, None),  # nobody drops any
    ],
)
def test_a_job_too_short_for_invariant_neurons_says_so(keys: dict[str, Any], sentence: str | None) -> None:
    said = [notice for notice in slow_fluid(**keys).notices if notice.startswith("rounds is")]
    assert said == ([] if sentence is None else [sentence])
