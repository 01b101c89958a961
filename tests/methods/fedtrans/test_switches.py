"""Every switch of FedTrans changes what it should, on the aggregator alone with made-up updates."""

import json
from typing import Any

import numpy as np
import pytest
from synthetic_job import with_accuracy

from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.fedtrans.aggregator import FedTransAggregator
from fedscale_ext.models import parameter_names

from ..harness import equal, play, pool_states, server

LOSSES = {client: 1.0 + 0.1 * client for client in range(1, 7)}


def new_aggregator(**switches: Any) -> Any:
    return server(FedTransAggregator, "fedtrans", **{"gamma": 1, "delta": 1, "beta": 1e9, **switches})


def grown(rounds: int, **switches: Any) -> tuple[Any, list[dict[str, Any]]]:
    one = new_aggregator(**switches)
    return one, [play(one, number, LOSSES) for number in range(1, rounds + 1)]


def differ(**switches: Any) -> tuple[Any, Any]:
    """The same rounds without and with the switches; they must agree until the first child and then not."""
    (plain, _), (other, _) = grown(6), grown(6, **switches)
    assert len(plain.pool) > 1 and len(other.pool) > 1
    assert not all(equal(pool_states(plain)[key], state) for key, state in pool_states(other).items()
                   if key in pool_states(plain))  # fmt: skip
    return plain, other


@pytest.mark.parametrize(("name", "value"), [
    ("sharing", "none"), ("decay", "off"), ("eta", 0.5), ("decay_clock", "age"), ("similarity", "one"),
    ("sim_reduce", "sum"), ("normalise", "literal"), ("align", "prefix"), ("l2s", True), ("warmup", "reinit"),
    ("symmetry", "equal"), ("server_opt", "yogi"), ("server_opt", "adam"),
])  # fmt: skip
def test_a_switch_changes_the_weights(name: str, value: Any) -> None:
    differ(**{name: value})


@pytest.mark.parametrize(("policy", "ops"), [
    ("widen_only", {"widen"}), ("deepen_only", {"deepen"}), ("alternate", {"widen", "deepen"}),
])  # fmt: skip
def test_transform_policy(policy: str, ops: set[str]) -> None:
    one, _ = grown(7, transform_policy=policy, alpha=0.0)
    assert {step.op for lineage in one.lineages for step in lineage.steps} == ops


def test_cell_selection_at_random_does_not_follow_activeness() -> None:
    active = {"c0": 0.1, "c1": 1.0, "c2": 0.2, "c3": 0.3}
    picks = {}
    for selection in ("activeness", "random"):
        one = new_aggregator(cell_selection=selection)
        one.active.append(active)
        picks[selection] = {tuple(one._select_cells(number)) for number in range(40)}
    assert picks["activeness"] == {("c1",)}
    assert picks["random"] == {("c0",), ("c1",), ("c2",), ("c3",)}
    one = new_aggregator(cell_selection="random", alpha=0.25)  # which two cells reach
    one.active.append(active)
    assert {len(one._select_cells(number)) for number in range(40)} == {2}


def test_warmup_reinit_starts_the_child_afresh() -> None:
    warm, cold = grown(2)[0], grown(2, warmup="reinit")[0]
    assert warm.pool["m1"].spec == cold.pool["m1"].spec
    assert not equal(warm.pool["m1"].state, cold.pool["m1"].state)
    assert [one.root for one in warm.lineages] == [0, 0]
    assert [one.root for one in cold.lineages] == [0, 1]


def test_a_child_copies_its_parents_utilities_and_the_parents_history_is_not_its_own() -> None:
    one, rounds = grown(2)
    assert rounds[1]["child"]["key"] == "m1"
    assert one.utilities.shape == (6, 2) and (one.utilities[:, 1] == one.utilities[:, 0]).all()
    assert one.utilities.any()
    assert [len(losses) for losses in one.losses] == [2, 0]
    assert [event["child"] for event in one.events if "child" in event] == ["m1"]


@pytest.mark.parametrize(("doc_loss", "expected"), [("newest", [(20 * 1.2 + 40 * 1.4) / 60]), ("all", [1.4333333])])
def test_doc_loss(doc_loss: str, expected: list[float]) -> None:
    one = new_aggregator(doc_loss=doc_loss, gamma=9)
    one.pool.add("m1", one.pool["m0"].spec, one.pool["m0"].state)
    one.lineages.append(one.lineages[0])
    one.losses.append([])
    one.optimizers.append(None)
    one.utilities = np.zeros((6, 2))
    one.utilities[[1, 3], 1] = 1e3  # clients 2 and 4 train the newest model, the others the first
    one.utilities[[0, 2, 4, 5], 0] = 1e3
    play(one, 1, LOSSES)
    assert one.losses[1] == pytest.approx(expected)


def test_cap_quantile_and_the_end_of_growing() -> None:
    base = new_aggregator().pool["m0"].cost.forward_macs
    capacity = [base] * 5 + [base * 1000]
    grows, _ = grown(2, capacity=capacity)
    assert len(grows.pool) == 2
    stays, rounds = grown(3, capacity=capacity, cap_quantile=0.5)
    assert len(stays.pool) == 1 and stays.exhausted and rounds[1]["exhausted"]
    assert stays.finished(3) is None


def test_a_child_need_only_fit_clients_that_may_train() -> None:
    base = new_aggregator().pool["m0"].cost.forward_macs
    one = new_aggregator(capacity=[base] * 5 + [base * 1000])
    one.eligible[5] = False
    for number in (1, 2):
        play(one, number, LOSSES, participants=[1, 2, 3, 4, 5])
    assert one.exhausted


def test_stop_converged() -> None:
    base = new_aggregator().pool["m0"].cost.forward_macs
    one, _ = grown(2, capacity=[base] * 6, stop="converged")
    assert "converged" in one.finished(2)
    falling = new_aggregator(capacity=[base] * 6, stop="converged", beta=0.003)
    falling.exhausted, falling.losses = True, [[3.0, 2.0]]
    assert falling.finished(2) is None


def test_stop_accuracy_after_rounds_without_gain() -> None:
    one = new_aggregator(stop="accuracy", stop_rounds=10, stop_gain=0.01)
    one.history = [with_accuracy(10, 0.5), with_accuracy(20, 0.505)]
    assert "0.01 over 10 rounds" in one.finished(21)
    assert one.finished(31) is None  # nothing was tested since
    one.history.insert(1, with_accuracy(13, 0.6))  # the last round of a job that was resumed with more rounds
    assert "0.01 over 10 rounds" in one.finished(21) and one.finished(24) == one.finished(21)
    short = new_aggregator(stop="accuracy", stop_rounds=2)
    short.history = [with_accuracy(10, 0.5)]
    assert short.finished(15) is None
    one.history = [with_accuracy(10, 0.5), with_accuracy(20, 0.52)]
    assert one.finished(21) is None
    assert new_aggregator().finished(10**6) is None


def test_ties_and_rounds_before_serving() -> None:
    served = {}
    for name, switches in {"largest": {}, "smallest": {"ties": "smallest"}, "young": {"serve_min_rounds": 3}}.items():
        served[name] = set(grown(2, **switches)[0].evaluation_plan().serve)
    assert served == {"largest": {"m1"}, "smallest": {"m0"}, "young": {"m0"}}


def test_server_optimizers_leave_buffers_and_activeness_to_the_clients_mean() -> None:
    (plain, plainly), (yogi, yogis) = grown(1), grown(1, server_opt="yogi")
    parameters = parameter_names(plain.pool["m0"].spec)
    for name, value in plain.pool["m0"].state.items():
        assert (value == yogi.pool["m0"].state[name]).all().item() == (name not in parameters), name
    assert plainly[0]["activeness"] == yogis[0]["activeness"]


def test_prox_mu_is_the_clients_objective_and_nothing_else() -> None:
    clients = np.array([1, 4])
    assert [dict(item.overrides) for item in new_aggregator().assign(1, clients)] == [{}, {}]
    assert [dict(item.overrides) for item in new_aggregator(prox_mu=0.3).assign(1, clients)] == [{"prox_mu": 0.3}] * 2
    (plain, rounds), (prox, same) = grown(4), grown(4, prox_mu=0.3)
    assert rounds == same
    assert all(equal(state, pool_states(prox)[key]) for key, state in pool_states(plain).items())
    for wrong in (-0.1, float("nan")):
        with pytest.raises(UserError, match=r"fedtrans.prox_mu"):
            new_aggregator(prox_mu=wrong)


def test_the_similarity_switch_leaves_the_choice_of_models_alone() -> None:
    _, rounds = grown(5, similarity="one")
    assert rounds[-1]["similarity"][0][1] < 1
    assert all(entry["mixing"][0] == [1.0] + [0.0] * (len(entry["mixing"]) - 1) for entry in rounds)


@pytest.mark.parametrize(("normalise", "total"), [("decayed", 0.98**3 + 1), ("literal", 1 + 1)])
def test_similarity_one_weighs_a_parent_by_its_decay_alone(normalise: str, total: float) -> None:
    _, rounds = grown(3, similarity="one", normalise=normalise)
    assert rounds[2]["mixing"][1] == pytest.approx([0.98**3 / total, 1 / total])


@pytest.mark.parametrize("switches", [{}, {"server_opt": "yogi"}, {"utility": "client_history"}])
def test_a_resumed_server_goes_on_bit_for_bit(switches: dict[str, Any]) -> None:
    def losses(number: int) -> dict[int, float]:  # who is above the others changes
        return {client: 1.0 + (client * number) % 7 / 10 for client in range(1, 7)}

    unbroken, resumed = new_aggregator(T=1, **switches), new_aggregator(T=1, **switches)
    for number in range(1, 6):
        play(unbroken, number, losses(number))
    tensors, data = unbroken.state()
    data = json.loads(json.dumps(data))  # as a checkpoint keeps it
    resumed.pool.load_state({}, [])
    for model in unbroken.pool:
        resumed.pool.add(model.key, model.spec, {name: value.clone() for name, value in model.state.items()})
    resumed.load_state({name: value.clone() for name, value in tensors.items()}, data)
    ends = [[play(one, number, losses(number)) for number in (6, 7)] for one in (unbroken, resumed)]
    assert ends[0] == ends[1] and resumed.active.maxlen == 1
    assert all(equal(state, pool_states(resumed)[key]) for key, state in pool_states(unbroken).items())
