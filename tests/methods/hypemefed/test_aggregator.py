"""HypeMeFed's rounds: who trains what, what is generated, and what becomes of both."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from job_results import assert_equal, run_job

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.core.types import State
from fedscale_ext.methods.hypemefed.aggregator import HypeMeFedAggregator
from fedscale_ext.models.multi_exit.family import prefix
from fedscale_ext.submodels import count_mean
from methods.harness import CLASSES, server, trained, updates_for

SHAPE = (1, 16, 16)
SPEC = models.named_spec("multi_exit_vgg_small", SHAPE, CLASSES)
MACS = [models.cost(prefix(SPEC, exits)).forward_macs for exits in (1, 2, 3)]


def hypemefed(**keys: Any) -> Any:
    params = {"model": "multi_exit_vgg_small", "hidden": 8, "epochs": 2, "levels": "capacity", **keys}
    if "groups" in keys and "levels" not in keys:
        del params["levels"]
    capacity = params.pop("capacity", [MACS[0], MACS[0], MACS[1], MACS[1], MACS[2], MACS[2]])
    return server(HypeMeFedAggregator, "hypemefed", shape=SHAPE, capacity=capacity, **params)


def states_of(aggregator: Any, round: int, items: Any) -> dict[int, State]:
    return {item.client: trained(aggregator.pool[item.model].state, round, item.client) for item in items}


def play(aggregator: Any, round: int, participants: list[int] | None = None) -> dict[int, State]:
    """One round of the hooks; the clients' states."""
    items = aggregator.assign(round, np.array(participants or range(1, aggregator.task.num_clients + 1)))
    states = states_of(aggregator, round, items)
    updates = updates_for(aggregator, items)
    for update in updates:
        aggregator.collect(round, update, states[update.client])
    aggregator.aggregate(round, updates, {})
    return states


def learn(aggregator: Any, round: int, states: list[State]) -> None:
    """Train the hypernetworks as the round does: each epoch takes the clients in an order of its own."""
    aggregator.hypernetworks.train(states, lambda target: stream(aggregator.seed, round, "order of samples", target))


def whole(aggregator: Any) -> State:
    return {name: tensor.clone() for name, tensor in aggregator.pool[aggregator.whole].state.items()}


def mean_by_hand(
    aggregator: Any, old: State, states: dict[int, State], more: dict[int, State], share: float = 1.0
) -> State:
    """Each client's own layers, and what stands for those that it lacks, weighted by samples."""
    local = [(state, dict.fromkeys(state), 10.0 * client) for client, state in states.items()]
    made_up = [(state, dict.fromkeys(state), share * 10.0 * client) for client, state in more.items()]
    return count_mean(old, local + made_up)


def equal(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_clients_train_and_are_served_the_prefix_that_they_afford() -> None:
    aggregator = hypemefed()
    items = aggregator.assign(1, np.arange(1, 7))
    assert [item.model for item in items] == ["exit1", "exit1", "exit2", "exit2", "exit3", "exit3"]
    assert list(aggregator.evaluation_plan().serve) == [item.model for item in items]
    assert aggregator.evaluation_plan().named == {"global": "exit3"}
    assert set(aggregator.pool["exit1"].state) == {
        n for n in whole(aggregator) if n.startswith(("common", "block1", "exit1"))
    }
    assert aggregator.smallest_spec() == prefix(SPEC, 1)
    assert (
        aggregator.selection_groups().tolist() == [2, 2, 1, 1, 0, 0]
        and hypemefed(strata=False).selection_groups() is None
    )


def test_groups_put_the_weakest_on_the_first_exit() -> None:
    aggregator = hypemefed(groups=[3, 1, 2], capacity=[9.0, 1e15, 3.0, 5.0, 1e14, 7.0])
    models_of = [item.model for item in aggregator.assign(1, np.arange(1, 7))]
    assert models_of == ["exit2", "exit3", "exit1", "exit1", "exit3", "exit1"]
    notices = [event["message"] for event in aggregator.events]
    assert "4 clients train a level that is beyond their capacity, as the sizes of levels ask" in notices
    assert aggregator.beyond_capacity == 4  # nobody's first exit is that cheap
    assert any("they would train what the sizes of levels give them all the same: 1, 3, 4, 6" in one for one in notices)


@pytest.mark.parametrize("at_once", [16, 2])
def test_generated_layers_land_in_the_model(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """The public code assigns them to a temporary: there the last lines would find the mean of deep clients alone."""
    monkeypatch.setattr("fedscale_ext.methods.hypemefed.aggregator._AT_ONCE", at_once)
    aggregator, twin = hypemefed(), hypemefed()
    old = whole(aggregator)
    states = play(aggregator, 1)
    layers = aggregator._layers()
    held = [{name: state[name] for name in layers if name in state} for state in states.values()]
    learn(twin, 1, held)
    generated = dict(zip(states, twin.hypernetworks.generate(held), strict=True))
    assert set(generated[1]) == {"block2.conv1.weight", "block3.conv1.weight"} and not generated[5]
    assert equal(whole(aggregator), mean_by_hand(aggregator, old, states, generated))
    alone = mean_by_hand(aggregator, old, states, {})
    assert not torch.equal(whole(aggregator)["block3.conv1.weight"], alone["block3.conv1.weight"])
    unchanged = {name for name in alone if torch.equal(whole(aggregator)[name], alone[name])}
    assert set(alone) - unchanged == set(generated[1])  # BatchNorm and exits: those who trained them


def test_what_stands_for_missing_layers() -> None:
    old = whole(hypemefed())
    beyond = [name for name in old if name.startswith(("block2", "block3")) and old[name].dim() > 1]
    assert beyond == ["block2.conv1.weight", "block3.conv1.weight"]
    for missing in ("trained", "stale", "random"):
        aggregator = hypemefed(missing=missing)
        states = play(aggregator, 1)
        # stale: BatchNorm and exits too, as in the public code, whose clients send the whole network back
        lacks = {c: {name: old[name] for name in old if name not in state} for c, state in states.items()}
        expected = mean_by_hand(aggregator, old, states, lacks if missing == "stale" else {})
        assert {len(each) > 0 for c, each in lacks.items() if c < 5} == {True} and not lacks[6]
        differs = [name for name in old if not torch.equal(whole(aggregator)[name], expected[name])]
        assert differs == ([] if missing != "random" else beyond)
        assert aggregator.state() == ({}, {})
    aggregator = hypemefed(missing="random")
    play(aggregator, 1)
    first = aggregator._internal_states["generated/1"]
    play(aggregator, 2)
    assert first.keys() == set(beyond) and not torch.equal(first[beyond[0]], old[beyond[0]])
    assert not equal(aggregator._internal_states["generated/1"], first)  # drawn anew in each round


@pytest.mark.parametrize("how", [{"generate": "+bn+fc"}, {"generate": "+bn"}, {"variant": "naive"}, {"loss": "factors"},
                                 {"weighted": False}, {"precision": "bfloat16"}])  # fmt: skip
def test_whatever_is_generated_lands_in_the_model(how: dict[str, Any]) -> None:
    aggregator, twin = hypemefed(**how), hypemefed(**how)
    old = whole(aggregator)
    states = play(aggregator, 1)
    learn(twin, 1, list(states.values()))
    generated = dict(zip(states, twin.hypernetworks.generate(list(states.values())), strict=True))
    kinds = {name.rsplit(".", 1)[1] for name in generated[1]} | {name[:5] for name in generated[1]}
    assert ("running_var" in kinds) == ("bn" in how.get("generate", ""))
    assert ("exit2" in kinds) == ("fc" in how.get("generate", ""))
    ones = [(s, dict.fromkeys(s), 1.0 if "weighted" in how else 10.0 * c)
            for each in (states, generated) for c, s in each.items()]  # fmt: skip
    assert equal(whole(aggregator), count_mean(old, ones))


def test_generated_weight_and_warmup() -> None:
    aggregator, twin, off = hypemefed(generated_weight=0.3), hypemefed(), hypemefed(missing="trained")
    old = whole(aggregator)
    states = play(aggregator, 1)
    held = [{name: state[name] for name in aggregator._layers() if name in state} for state in states.values()]
    learn(twin, 1, held)
    generated = dict(zip(states, twin.hypernetworks.generate(held), strict=True))
    assert equal(whole(aggregator), mean_by_hand(aggregator, old, states, generated, share=0.3))
    warm = hypemefed(warmup=0.5, rounds=4)
    for round in (1, 2):
        play(warm, round), play(off, round)
        assert equal(whole(warm), whole(off))
    assert all(network.rounds == 2 for network in warm.hypernetworks.networks.values())  # they learn meanwhile
    play(warm, 3), play(off, 3)
    assert not equal(whole(warm), whole(off))
    late, off = hypemefed(warmup=0.29, rounds=100), hypemefed(missing="trained")
    play(late, 29), play(off, 29)  # in floating point, 0.29 * 100 is below 29
    assert equal(whole(late), whole(off))
    for spent, generates in ((499.0, False), (500.0, True)):
        budget, off = hypemefed(warmup=0.5, rounds=100, stop_macs=1000.0), hypemefed(missing="trained")
        budget.spent_macs = spent
        play(budget, 1), play(off, 1)
        assert equal(whole(budget), whole(off)) != generates


def test_a_round_without_a_deep_client_goes_on() -> None:
    aggregator = hypemefed()
    old = whole(aggregator)
    play(aggregator, 1, [1, 2, 3])  # nobody trains block 3, and no network for it was ever trained
    new = whole(aggregator)
    for name, tensor in old.items():
        moved = name.startswith(("common", "block1", "exit1", "block2", "exit2"))
        assert torch.equal(new[name], tensor) != moved
    play(aggregator, 2)
    before = whole(aggregator)
    play(aggregator, 3, [1, 2, 3])  # now one generates it for them
    changed = [name for name in before if not torch.equal(before[name], whole(aggregator)[name]) and "3." in name[:7]]
    assert changed == ["block3.conv1.weight"]


def test_hypernetworks_that_diverge_are_told_and_generate_nothing() -> None:
    aggregator, off = hypemefed(lr=1e20), hypemefed(missing="trained")
    play(aggregator, 1), play(off, 1)
    notices = [event["message"] for event in aggregator.events]
    names = "block2.conv1, block3.conv1"
    assert f"round 1: hypernetworks that diverged are as they were before it: {names}; lower hypemefed.lr" in notices
    assert equal(whole(aggregator), whole(off))


def test_generated_layers_that_are_not_finite_are_told_and_do_not_count() -> None:
    aggregator, off = hypemefed(), hypemefed(missing="trained")
    play(aggregator, 1), play(off, 1)
    start = whole(aggregator)
    aggregator.hypernetworks.networks["block3.conv1"].values *= 1e38
    off.pool.update(off.whole, start)
    play(aggregator, 2), play(off, 2)
    sentence = (
        "round 2: layers were generated with numbers that are not finite (block3.conv1); they and the layers after "
        "them do not count; lower hypemefed.lr"
    )
    assert sentence in [event["message"] for event in aggregator.events]
    assert all(bool(tensor.isfinite().all()) for tensor in whole(aggregator).values())
    differ = [name for name, tensor in whole(aggregator).items() if not torch.equal(tensor, whole(off)[name])]
    assert differ == ["block2.conv1.weight"]  # only that was generated


def test_without_multi_exit_each_client_trains_its_last_exit_alone() -> None:
    aggregator = hypemefed(multi_exit=False)
    assert [model.key for model in aggregator.pool] == ["global", "exit3", "exit2", "exit1"]
    exits = {
        key: {name[:5] for name in aggregator.pool[key].state if name.startswith("exit")} for key in aggregator.keys
    }
    assert exits == {"exit3": {"exit3"}, "exit2": {"exit2"}, "exit1": {"exit1"}}
    old = whole(aggregator)
    play(aggregator, 1)
    assert all(
        not torch.equal(old[f"exit{e}.linear.weight"], whole(aggregator)[f"exit{e}.linear.weight"]) for e in (1, 2, 3)
    )


@pytest.mark.parametrize("sample_order", ["shuffled", "fixed"])
def test_samples_are_learned_in_an_order_that_internals_tell(sample_order: str) -> None:
    """The public code's loader shuffles them anew in each epoch."""
    aggregator, twin, other = (hypemefed(sample_order=sample_order, epochs=6) for _ in range(3))
    play(aggregator, 1, [4, 5, 6, 3]), play(twin, 1, [4, 5, 6, 3])
    orders = aggregator._internals["hypernetwork_orders"]
    assert sorted(orders["block2.conv1"][0]) == [3, 4, 5, 6] and sorted(orders["block3.conv1"][0]) == [5, 6]
    distinct = {tuple(order) for order in orders["block2.conv1"]}
    assert len(orders["block2.conv1"]) == 6 and (len(distinct) > 1) == (sample_order == "shuffled")
    if sample_order == "fixed":
        assert distinct == {tuple(aggregator._internals["samples"])}
    assert twin._internals["hypernetwork_orders"] == orders and equal(whole(aggregator), whole(twin))
    play(other, 2, [4, 5, 6, 3])
    assert (other._internals["hypernetwork_orders"] != orders) == (sample_order == "shuffled")


def norm(tensor: torch.Tensor) -> float:
    return float(tensor.double().norm())


def test_generated_layers_are_scaled_to_the_norm_of_trained_ones() -> None:
    aggregator, plain = hypemefed(rescale=True), hypemefed(rescale=False)
    for round in (1, 2):
        states = play(aggregator, round)
        name = "block3.conv1.weight"
        expected = (50 * norm(states[5][name]) + 60 * norm(states[6][name])) / 110  # weighted by samples
        for client in (1, 2, 3, 4):
            generated = aggregator._internal_states[f"generated/{client}"][name]
            assert norm(generated) == pytest.approx(expected, rel=1e-5)
    play(plain, 1)
    assert norm(plain._internal_states["generated/1"][name]) != pytest.approx(expected, rel=1e-2)
    before = whole(aggregator)
    play(aggregator, 3, [1, 2])  # nobody trains the layers: they keep the norm of the round's start
    for name in ("block2.conv1.weight", "block3.conv1.weight"):
        assert norm(aggregator._internal_states["generated/1"][name]) == pytest.approx(norm(before[name]), rel=1e-5)


@pytest.mark.parametrize("keys", [{}, {"rescale": True}])
def test_generated_layers_of_ten_exits_are_scaled_where_asked_for_alone(keys: dict[str, bool]) -> None:
    ten = models.named_spec("multi_exit_cnn10", SHAPE, CLASSES)
    capacity = [models.cost(prefix(ten, exits)).forward_macs for exits in (2, 2, 3, 3, 10, 10)]
    aggregator = hypemefed(model="multi_exit_cnn10", capacity=capacity, **keys)
    states = play(aggregator, 1)
    name = "block10.conv1.weight"
    expected = (50 * norm(states[5][name]) + 60 * norm(states[6][name])) / 110
    generated_norm = norm(aggregator._internal_states["generated/1"][name])
    assert (generated_norm == pytest.approx(expected, rel=1e-4)) == bool(keys)


def test_internals_tell_how_near_generated_layers_are() -> None:
    aggregator = hypemefed()
    states = play(aggregator, 1)
    assert set(aggregator._internals["hypernetwork_loss"]) == {"block2.conv1", "block3.conv1"}
    figures = aggregator._internals["generated"]["block3.conv1.weight"]
    assert {"mae", "normalised", "mae_old", "mae_random", "step", "cosine", "norm"} == set(figures)
    assert figures["mae"] > figures["mae_old"] > 0
    made_for = {client: aggregator._internal_states[f"generated/{client}"] for client in (1, 2, 3, 4)}

    def norm(of: dict[int, State]) -> float:
        """Of the mean, by samples, of what clients trained or were given."""
        tensors = [(state["block3.conv1.weight"].double(), 10.0 * client) for client, state in of.items()]
        return float(sum(tensor * weight for tensor, weight in tensors).norm()) / sum(weight for _, weight in tensors)

    expected = norm(made_for) / norm({client: states[client] for client in (5, 6)})
    assert figures["norm"] == pytest.approx(expected, rel=1e-6)


def test_internals_name_the_clients_in_the_order_of_learning() -> None:
    """Batches of one: another order gives other networks, so that a check of the equations must know it."""
    aggregator = hypemefed()
    items = aggregator.assign(1, np.arange(1, 7))
    states, updates = states_of(aggregator, 1, items), updates_for(aggregator, items)
    for update in reversed(updates):  # units of one model are collected together, whatever the clients' numbers
        aggregator.collect(1, update, states[update.client])
    aggregator.aggregate(1, updates, {})
    assert list(aggregator._internals["samples"]) == [6, 5, 4, 3, 2, 1]


def test_more_components_than_there_are_is_told() -> None:
    notices = [event["message"] for event in hypemefed().events]
    assert "hypemefed.k is 100, and no layer has more than 96 components: all are kept" in notices
    for keys in ({"k": 20}, {"k": 20, "generate": "+bn+fc"}, {"variant": "naive"}):
        assert not [event for event in hypemefed(**keys).events if "are kept" in event["message"]]


def test_k_without_components_has_no_effect_and_that_is_told() -> None:
    for k in (20, "all"):
        notices = [event["message"] for event in hypemefed(variant="naive", k=k).events]
        assert f"hypemefed.k is {k}, and no singular components are taken: it has no effect" in notices
    assert not [event for event in hypemefed(variant="naive").events if "no effect" in event["message"]]


def test_hypernetworks_go_on_after_a_checkpoint() -> None:
    one, two = hypemefed(), hypemefed()
    play(one, 1)
    tensors, data = one.state()
    two.pool.update("exit3", whole(one))
    two.load_state(tensors, data)
    play(one, 2), play(two, 2)
    assert equal(whole(one), whole(two))


def test_what_hypernetworks_take_on_the_server_is_counted() -> None:
    aggregator = hypemefed()
    held = sum(
        network.values.numel() * network.values.element_size() for network in aggregator.hypernetworks.networks.values()
    )
    assert aggregator.server_bytes() == held > 0
    assert hypemefed(missing="trained").server_bytes() == 0


def test_objective_and_weights() -> None:
    aggregator = hypemefed(prox_mu=0.1, weighted=False)
    items = aggregator.assign(1, np.arange(1, 7))
    assert {aggregator.weight(item) for item in items} == {1.0}
    assert all(dict(item.overrides) == {"prox_mu": 0.1} for item in items)
    assert not hypemefed().assign(1, np.array([1]))[0].overrides


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"k": 5000}, "hypemefed.k is 5000, but the largest convolution .* singular components"),
        ({"k": 0}, "hypemefed.k is 0; it must be at least 1"),
        ({"groups": [3, 3]}, "a number of clients for each of 3 levels"),
        ({"groups": [3, 3, 3]}, "add up to the 6 clients .*they add up to 9"),
        ({"groups": [2, 2, 2], "levels": "fix"}, r"groups is given and hypemefed.levels is fix; .*groups=\[\]' takes"),
        ({"groups": [2, 2, 1, 1]}, "for each of 3 levels, smallest first, and it holds 4 numbers"),
        ({"groups": [7, -1, 0]}, "none of them negative"),
        ({"levels": "fix", "shares": [0.5, 0.3, 0.3]}, "shares must add up to 1, and these add up to 1.1"),
        ({"levels": "groups"}, "give their sizes"),
        ({"levels": "fix", "shares": [1.0, 1.0]}, "a share, not negative, for each of 3 levels"),
        ({"model": "nasbench201_base"}, "needs a network with several exits"),
        ({"hidden": 0}, "hidden is 0; it must be from 1 to 100,000"),
        ({"hidden": 10**9}, "hidden is 1000000000; it must be from 1 to 100,000"),
        ({"epochs": 10**12}, "epochs is 1000000000000; it must be from 1 to 1,000,000"),
        ({"lr": 0}, "lr is 0"),
        ({"generated_weight": 1.5}, "must be from 0 to 1"),
        ({"warmup": -0.1}, "must be from 0 to 1"),
        ({"prox_mu": -1}, "must be at least 0"),
    ],
)
def test_bad_hyperparameters_are_one_sentence(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        hypemefed(**keys)


def test_nobody_for_the_whole_network_is_refused_unless_asked_for() -> None:
    weak = [MACS[1]] * 6
    for keys in ({}, {"levels": "fix"}, {"levels": "fix", "shares": [0.5, 0.3, 0.2]}):
        with pytest.raises(
            UserError, match=r"no client is on level exit3, .* takes [\d,]+ MACs, the strongest client affords"
        ):
            hypemefed(capacity=weak, **keys)
    assert set(hypemefed(levels="fix", shares=[1.0, 0.0, 0.0], capacity=weak).level_of) == {2}
    assert set(hypemefed(groups=[2, 2, 2], capacity=weak).level_of) == {0, 1, 2}


def test_shares_that_clients_do_not_afford_are_told() -> None:
    aggregator = hypemefed(levels="fix", shares=[0.0, 0.0, 1.0])
    assert aggregator.level_of.tolist() == [2, 2, 1, 1, 0, 0]
    notices = [event["message"] for event in aggregator.events]
    assert "4 clients are on a smaller level than shares alone give them: they do not afford every level" in notices


def test_a_level_without_clients_is_told() -> None:
    aggregator = hypemefed(groups=[6, 0, 0])
    notices = [event["message"] for event in aggregator.events]
    assert [message[:25] for message in notices if message.startswith("no client")] == ["no client is on level exi"] * 2
    play(aggregator, 1)  # nothing to learn from, nothing to generate


def test_an_empty_shallow_level_costs_nothing() -> None:
    aggregator = hypemefed(groups=[0, 3, 3])
    notices = [event["message"] for event in aggregator.events]
    assert "no client is on level exit1: what no other level trains keeps its initial values" in notices
    old = whole(aggregator)
    play(aggregator, 1)
    assert not any(torch.equal(old[name], whole(aggregator)[name]) for name in old if name.endswith("weight"))


def run(job_file: Path, name: str, at_once: bool = True, **keys: Any) -> dict[str, Any]:
    """A whole job's results; ``at_once``: in this process."""
    settings = {"method": "hypemefed", "model": "multi_exit_vgg_small", "hypemefed.hidden": 8, "hypemefed.epochs": 2,
                "hypemefed.groups": [3, 2, 2], "num_participants": 7, **keys}  # fmt: skip
    return run_job(job_file, name, at_once, **settings)


def test_a_job_resumes_to_the_same_result_with_any_number_of_executors(job_file: Path) -> None:
    unbroken = run(job_file, "unbroken", at_once=False, rounds=3)
    run(job_file, "broken", rounds=2)
    resumed = run(job_file, "broken", at_once=False, rounds=3, resume=True)
    assert_equal(resumed, unbroken)
    assert_equal(run(job_file, "one executor", rounds=3), unbroken)


def test_cohorts_equal_clients_one_by_one(job_file: Path) -> None:
    one, together = run(job_file, "one"), run(job_file, "together", cohort_size=4, unit_size=4)
    assert max(together["rounds"][0]["cohort_sizes"].values()) > 1
    for name, tensor in one["models"]["exit3"][1].items():
        torch.testing.assert_close(tensor, together["models"]["exit3"][1][name], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("how", [{"hypemefed.prox_mu": 1.0}, {"control_variates": True}])
def test_it_composes_with_fedprox_and_scaffold(job_file: Path, how: dict[str, Any]) -> None:
    """Section 4.2. The first round's control variates are zero, so that they tell from the second on."""
    plain, other = run(job_file, "plain", rounds=2), run(job_file, "other", rounds=2, **how)
    first, second = ([entry["train_loss"] for entry in each["rounds"]] for each in (plain, other))
    assert second[1] != first[1] and all(np.isfinite(second))
    assert_equal(run(job_file, "again", rounds=2, **how), other)


def test_weights_that_are_never_generated_are_told() -> None:
    sentence = "no weights are generated: hypemefed.warmup is 1, all rounds"
    assert sentence in hypemefed(warmup=1.0).notices
    assert (
        sentence not in hypemefed(warmup=0.9).notices and sentence not in hypemefed(warmup=1.0, missing="stale").notices
    )
