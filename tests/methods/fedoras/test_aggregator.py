"""FedorAS's rounds of supernet training: who is sent what, what it counts for, what is refused; whole jobs."""

from collections.abc import Callable
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
from fedscale_ext.core.types import State, WorkItem
from fedscale_ext.methods.fedoras.aggregator import FedorASAggregator
from fedscale_ext.methods.fedoras.brackets import budget_tables
from fedscale_ext.methods.fedoras.client import EXAMPLES, FedorASExecutor
from fedscale_ext.methods.fedoras.operator_aggregation import operator_of
from fedscale_ext.methods.fedoras.path_sampling import cheapest, drawn_paths, path_macs
from fedscale_ext.methods.fedoras.subspace_sampling import held_by
from fedscale_ext.methods.fedoras.supernet_training import SUPERNET
from fedscale_ext.models.supernet import family as supernet
from fedscale_ext.models.supernet.family import tables
from fedscale_ext.tasks.answers.update_checks import Rejected
from fedscale_ext.transport import wire
from methods import small_space
from methods.harness import equal, server, trained, updates_for


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_space.written(tmp_path_factory.mktemp("space"), small_space.space(2, 2))


@pytest.fixture
def fedoras(space: Path, tmp_path: Path) -> Any:
    def make(**keys: Any) -> Any:
        capacity = keys.pop("capacity", [1e15, 1, 1e3, 1e9, 1e6, 1e12])
        params = {"model": str(space), "tiers": None if "brackets" in keys else 3, "allocation": "shares", **keys}
        aggregator = server(FedorASAggregator, "fedoras", shape=(1, 16, 16), capacity=capacity, **params)
        aggregator.log_dir = tmp_path
        aggregator.client_tensors_by_kind = {kind.kind: kind for kind in aggregator.client_tensors()}
        return aggregator

    return make


def examples_of(aggregator: Any, round: int, item: WorkItem) -> torch.Tensor:
    """What the client of an item would count."""
    training = aggregator.training
    tier = training.tiers[training.tier_of[item.client - 1]]
    costs, objective = budget_tables(training.spec, tier.unsupported), item.objective["paths"]
    sizes = aggregator.task.step_sizes(item.client, item.overrides)
    held = held_by(costs, aggregator.pool[item.model].spec)
    key = aggregator.seed, round, item.client
    counts = np.zeros(costs.held.shape, dtype=np.int64)
    for path, size in zip(
        drawn_paths(costs, held, objective["budget"], objective["load"], len(sizes), *key), sizes, strict=True
    ):
        counts[np.arange(len(path)), path] += size
    return torch.from_numpy(counts)


def play(aggregator: Any, round: int, clients: list[int] | None = None) -> dict[int, State]:
    """One round of the hooks, as the runtime calls them; the clients' states."""
    items = aggregator.assign(round, np.array(clients or range(1, 7)))
    states, (experience,) = {}, aggregator.client_tensors_by_kind.values()
    experience.begin(items)
    for update in updates_for(aggregator, items):
        states[update.client] = trained(aggregator.pool[update.item.model].state, round, update.client)
        section = wire.tensors_to_bytes({EXAMPLES: examples_of(aggregator, round, update.item)})
        experience.take(round, update.item, experience.checked(update.item, section))
        aggregator.collect(round, update, states[update.client])
    aggregator.aggregate(round, [], {})
    aggregator.pool.drop_transient()
    return states


def test_weak_clients_are_in_small_tiers_and_are_tested_on_a_path_of_theirs(fedoras: Any) -> None:
    aggregator = fedoras()
    assert aggregator.tier_of.tolist() == [2, 0, 0, 1, 1, 2]
    assert list(aggregator.evaluation_plan().serve) == ["tier3", "tier1", "tier1", "tier2", "tier2", "tier3"]
    for number, (tier, costs) in enumerate(
        zip(aggregator.training.tiers, aggregator.training.costs, strict=True), start=1
    ):
        spec = aggregator.pool[f"tier{number}"].spec
        assert not models.searched(spec)
        columns = held_by(costs, spec).argmax(1)
        assert path_macs(costs, columns[None])[0] <= tier.budget
    macs = [aggregator.pool[f"tier{number}"].cost.forward_macs for number in (1, 2, 3)]
    assert macs == sorted(macs) and macs[0] < macs[2]
    assert fedoras(shares=[0.5, 0.16, 0.34]).tier_of.tolist() == [2, 0, 0, 1, 0, 2]
    assert aggregator.smallest_spec() == supernet.path_of(aggregator.training.spec, ["identity"] * 4)


def test_each_client_is_sent_a_subspace_of_its_own_within_the_bytes(fedoras: Any) -> None:
    aggregator = fedoras(subspace=0.6)
    items = aggregator.assign(1, np.arange(1, 7))
    whole, specs = aggregator.pool[SUPERNET], {aggregator.pool[item.model].spec for item in items}
    assert len(specs) == 6
    for item in items:
        model = aggregator.pool[item.model]
        assert model.cost.bytes <= 0.6 * whole.cost.bytes and item.bytes is None
        held = {(layer, name) for layer, row in enumerate(model.spec["ops"]) for name in row}
        assert {name for name in whole.state if operator_of(name) in {None, *held}} == set(model.state)
        # the wire: the tensors' own bytes, and what safetensors writes of their names
        section = wire.tensors_to_bytes(aggregator.pool[item.model].state)
        values = sum(tensor.nbytes for tensor in model.state.values())
        assert values == model.cost.bytes and values < len(section) < values + 200 * len(model.state)
        assert set(wire.bytes_to_tensors(section)) == set(model.state)
    again = aggregator.assign(2, np.arange(1, 7))
    assert {aggregator.pool[item.model].spec for item in again} != specs
    aggregator.pool.drop_transient()
    assert [model.key for model in aggregator.pool] == [SUPERNET, "tier1", "tier2", "tier3"]


def test_a_round_may_share_one_subspace_in_which_the_weakest_has_a_path(fedoras: Any) -> None:
    aggregator = fedoras(subspace_per="round")
    items = aggregator.assign(1, np.array([1, 2, 4]))
    assert {item.model for item in items} == {"subspace"}
    held = held_by(aggregator.training.macs, aggregator.pool["subspace"].spec)
    assert cheapest(aggregator.training.costs[0], held) <= aggregator.training.tiers[0].budget
    assert [item.objective["paths"]["budget"] for item in items] == [
        aggregator.training.tiers[t].budget for t in (2, 0, 1)
    ]


def test_a_subspace_of_a_round_has_a_path_for_devices_that_lack_different_operators(fedoras: Any) -> None:
    """And all that some of them can run may be sent, for those."""
    without = [["identity", "dsconv3"], ["dsconv3_double"], []]
    sent = set()
    for seed in range(4):
        aggregator = fedoras(subspace_per="round", unsupported=without, subspace=0.7, seed=seed)
        items = aggregator.assign(1, np.arange(1, 7))
        held = held_by(aggregator.training.macs, aggregator.pool["subspace"].spec)
        for tier, costs in zip(aggregator.training.tiers, aggregator.training.costs, strict=True):
            assert cheapest(costs, held) <= tier.budget
        assert len(items) == 6
        sent |= {name for row in aggregator.pool["subspace"].spec["ops"] for name in row}
    assert sent == {"conv1", "dsconv3", "dsconv3_double", "identity"}


@pytest.mark.parametrize("load", [0.0, 0.6])
def test_the_clock_counts_the_macs_of_the_paths_that_a_client_draws(fedoras: Any, load: float) -> None:
    aggregator = fedoras(dynamic_budget=load)
    macs = tables(aggregator.training.spec)
    for item in aggregator.assign(3, np.arange(1, 7)):
        counts = examples_of(aggregator, 3, item).numpy()
        total = (macs.macs[macs.held] * counts[macs.held]).sum() / counts[0].sum() + macs.fixed_macs
        assert item.compute_fraction * aggregator.pool[item.model].cost.forward_macs == pytest.approx(total)
        both = (macs.training_macs[macs.held] * counts[macs.held]).sum() / counts[0].sum() + macs.fixed_training_macs
        assert (item.training_fraction or 0) * aggregator.pool[item.model].cost.training_macs == pytest.approx(both)
        assert item.objective["paths"]["load"] == load and item.overrides["held_out"] == 0.1


def test_a_round_is_the_mean_over_those_who_trained_each_operator(fedoras: Any) -> None:
    aggregator = fedoras()
    old = dict(aggregator.pool[SUPERNET].state)
    items = {item.client: item for item in aggregator.assign(1, np.arange(1, 7))}
    counts = {client: examples_of(aggregator, 1, item).numpy() for client, item in items.items()}
    states = play(aggregator, 1)
    new, ops = aggregator.pool[SUPERNET].state, aggregator.training.macs.ops
    for name, tensor in new.items():
        operator = operator_of(name)
        if operator is None:
            weights = dict.fromkeys(states, 10)  # updates_for says that each trained on 10 examples
        else:
            column = ops[operator[0]].index(operator[1])
            weights = {
                c: int(examples[operator[0], column]) for c, examples in counts.items() if examples[operator[0], column]
            }
            if len(weights) < 2:
                assert torch.equal(tensor, old[name])
                continue
        total = sum(w * states[client][name].double() for client, w in weights.items()) / sum(weights.values())
        torch.testing.assert_close(tensor, total.round().long() if tensor.dtype == torch.int64 else total.float())
    for key in ("tier1", "tier2", "tier3"):  # what is tested follows
        assert all(torch.equal(tensor, new[name]) for name, tensor in aggregator.pool[key].state.items())
    assert aggregator._internals["operators"] > 3


def test_the_public_codes_scope_and_other_means_can_be_chosen(fedoras: Any) -> None:
    states = {}
    for keys in ({}, {"opa_scope": "buffers_only"}, {"aggregation": "fedavg"}, {"aggregation": "plain"}):
        aggregator = fedoras(opa_min_clients=1, **keys)
        play(aggregator, 1)
        states[str(keys)] = aggregator.pool[SUPERNET].state
    first, *others = states.values()
    assert all(not equal(first, other) for other in others)
    assert equal(others[1], others[2])  # updates_for says that all trained on as many examples
    parameters = set(models.parameter_names(aggregator.training.spec))
    differs = {name for name in first if not torch.equal(first[name], others[0][name])}
    assert differs and differs <= parameters and all(operator_of(name) for name in differs)


@pytest.mark.parametrize("over", ["participants", "holders"])
def test_fedavg_counts_unchanged_copies_unless_it_is_over_holders(fedoras: Any, over: str) -> None:
    aggregator = fedoras(aggregation="fedavg", mean_over=over, opa_min_clients=1)
    old = dict(aggregator.pool[SUPERNET].state)
    states, stale = play(aggregator, 1), 0
    new, trained_by = aggregator.pool[SUPERNET].state, aggregator.training._means.clients
    for name in models.parameter_names(aggregator.training.spec):
        operator = operator_of(name)
        if operator is None or not trained_by[operator]:
            continue
        held = [state[name] for state in states.values() if name in state]
        copies = [old[name]] * (len(states) - len(held) if over == "participants" else 0)
        stale += len(states) - len(held)
        # updates_for says that all trained on as many examples
        torch.testing.assert_close(new[name], torch.stack(held + copies).double().mean(0).float())
    assert stale


@pytest.mark.parametrize("idle", ["zero", "none"])
def test_clients_hear_what_becomes_of_operators_that_paths_leave_out(fedoras: Any, idle: str) -> None:
    items = fedoras(idle_gradient=idle).assign(1, np.arange(1, 7))
    assert {item.objective["paths"]["idle_gradient"] for item in items} == {idle}
    assert {item.objective["paths"]["idle_gradient"] for item in fedoras().assign(1, np.array([1]))} == {"zero"}


def test_operators_that_a_tier_cannot_run_are_not_sent_to_it(fedoras: Any) -> None:
    aggregator = fedoras(unsupported=[["dsconv3"], [], []], subspace=1.0)
    for item in aggregator.assign(1, np.arange(1, 7)):
        names = {name for row in aggregator.pool[item.model].spec["ops"] for name in row}
        assert ("dsconv3" in names) == (item.client not in (2, 3))


def test_counts_that_cannot_be_are_refused(fedoras: Any) -> None:
    aggregator = fedoras(subspace=0.3)
    (item,) = aggregator.assign(1, np.array([1]))
    (experience,) = aggregator.client_tensors_by_kind.values()
    good = examples_of(aggregator, 1, item)
    held = torch.from_numpy(held_by(aggregator.training.macs, aggregator.pool[item.model].spec))

    def check(counts: torch.Tensor) -> None:
        experience.checked(item, wire.tensors_to_bytes({EXAMPLES: counts}))

    check(good)
    moved, other = good.clone(), good.clone()
    layer = int((~held).any(1).nonzero()[0])
    moved[layer] = 0
    moved[layer, int((~held[layer]).nonzero()[0])] = 10  # of an operator that it does not hold
    other[0] += 2**62  # wraps where it is added up
    for bad in (good + 1, good * 0, moved, other, -good, good.float(), good[:1]):
        with pytest.raises(Rejected):
            check(bad)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"brackets": [0.001, 5.0]}, r"budget of tier 1 is 0.001 MMACs and its cheapest path takes 0.0\d+; raise fed"),
        ({"shares": [0.9, 0.05, 0.05]}, r"tier [23] of 3 has none of the 6 clients"),
        ({"allocation": "capacity", "capacity": [1.0] * 6}, "tier 2 of 3 has none of the 6 clients; set fedoras.alloc"),
        ({"allocation": "capacity", "shares": [1.0, 1.0, 1.0]}, "shares is given and fedoras.allocation is capacity"),
        ({"tiers": 2, "brackets": [1.0, 2.0, 3.0]}, "are of 3 tiers and fedoras.tiers is 2; leave one out"),
        ({"brackets": [1000.0, 2000.0]}, "no path can be searched for that takes above 1000 and at most 2000 MMACs"),
        ({"population": 0}, "fedoras.population is 0; it must be at least 2"),
        ({"evaluations": [10, 10]}, "fedoras.evaluations has 2 numbers; there are 3 tiers"),
        ({"finetune_rounds": -1}, "finetune_rounds is -1; it must be at least 0"),
        ({"val_fraction": 0.0}, "val_fraction is 0.0; it must be above 0"),
        ({"val_ratio": 0.0}, "no client holds out a sample at fedoras.val_ratio 0"),
        ({"evaluation": "central"} | {"search": "nsga"}, "fedoras.search"),
        ({"model": "cnn_small"}, "needs a supernet, and model cnn_small is none"),
        ({"subspace": 0.05}, r"one operator for each layer may take .* bytes|it must be at least 0.\d+"),
        ({"subspace": 0.0}, "subspace is 0.0; it must be above 0"),
        ({"dynamic_budget": 1.0}, "dynamic_budget is 1.0; it must be at least 0 and below 1"),
        ({"val_ratio": -0.1}, "val_ratio is -0.1"),
        ({"tiers": 0}, "tiers is 0; it must be at least 1"),
        ({"opa_min_clients": 0}, "opa_min_clients is 0"),
        ({"brackets": [3.0, 2.0]}, "rising MMACs"),
        ({"shares": [1.0]}, "a share above 0 for each of 3 tiers"),
        ({"unsupported": [["conv1"]]}, "must hold one for each of 3 tiers"),
        ({"unsupported": [["conv9"], [], []]}, "no operator 'conv9'"),
        (
            {
                "brackets": [0.06, 0.1, 0.3],
                "unsupported": [["conv1", "identity"], ["dsconv3"], ["dsconv3_double"]],
                "subspace_per": "round",
            },
            "tiers must share a path: all operators of layer 0 are unsupported",
        ),
        (
            {
                "brackets": [0.042, 0.3],
                "unsupported": [[], ["conv1", "identity"]],
                "subspace_per": "round",
                "subspace": 1.0,
            },
            "all tiers support takes 0.0[4-9]\\d* MMACs, above the lowest budget, 0.042; set fedoras.subspace_per",
        ),
        ({"subspaces": 0.3}, "no hyperparameter fedoras.subspaces; did you mean 'fedoras.subspace'"),
        ({"aggregation": "opaa"}, "fedoras.aggregation"),
    ],
)
def test_bad_input_is_one_sentence(fedoras: Any, keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        fedoras(**keys)


def test_what_does_not_go_with_paths_is_refused(job_file: Path, space: Path) -> None:
    for keys, sentence in (
        ({"control_variates": True}, "trains another path in each"),
        ({"client_optimizer": "adam"}, "steps each path by SGD"),
    ):
        with pytest.raises(UserError, match=sentence):
            run(job_file, space, "refused", **keys)


def test_defaults_are_the_papers() -> None:
    params = make_params(FedorASAggregator.Params, make_config({}, {"method": "fedoras"}))
    assert (params.subspace, params.subspace_per, params.aggregation) == (0.5, "client", "opa")
    assert (params.opa_min_clients, params.opa_scope, params.val_ratio) == (2, "all", 0.1)
    assert FedorASAggregator.Executor is FedorASExecutor


def run(job_file: Path, space: Path, name: str, **keys: Any) -> dict[str, Any]:
    settings = {
        "method": "fedoras",
        "model": str(space),
        "fedoras.tiers": 2,
        "fedoras.allocation": "shares",
        "fedoras.dynamic_budget": 0.3,
    }
    fedscale_ext.run(job_file, job_name=name, **{**settings, "num_participants": 6, "local_steps": 4, **keys})
    return result(job_file.parent / "logs" / name / "logs")


def test_a_job_resumes_to_the_same_result_with_any_number_of_executors(job_file: Path, space: Path) -> None:
    keys: dict[str, Any] = {"filter_less": 3, "cohort_size": "auto"}
    unbroken = run(job_file, space, "unbroken", rounds=3, **keys)
    run(job_file, space, "broken", rounds=2, num_executors=1, **keys)
    resumed = run(job_file, space, "broken", rounds=3, num_executors=3, resume=True, **keys)
    assert_equal(resumed, unbroken)
    last = unbroken["rounds"][-1]
    assert last["assignments"] == {SUPERNET: 6} and last["models"] == 3 and not last["failed"]
    assert set(last["evaluation"]["named"]) == {"tier1", "tier2"} and not last["cohort_sizes"]


def test_a_job_with_one_subspace_a_round_tunes_and_measures_what_it_serves(job_file: Path, space: Path) -> None:
    result = run(
        job_file, space, "round", **{
            "fedoras.subspace_per": "round", "rounds": 1, "personalise_epochs": 1, "bn_statistics": "federated",
        }
    )  # fmt: skip
    (only,) = result["rounds"]
    assert only["personalised"] is not None and not only["failed"]
    spec, state = result["models"]["tier1"]
    name = next(name for name in state if name.endswith("stem.bn.running_mean"))
    assert not torch.equal(state[name], result["models"][SUPERNET][1][name])  # re-estimated
    assert not models.searched(spec)


def test_clients_whose_tier_is_beyond_their_devices_are_counted_and_told(fedoras: Callable[..., Any]) -> None:
    """Tiers rank devices, whatever they afford."""
    assert fedoras(capacity=[1e15] * 6).beyond_capacity == 0
    aggregator = fedoras(capacity=[1e15, 1, 1e3, 1e15, 1e15, 1e15])
    assert aggregator.beyond_capacity == 2
    assert any("2 of 6 clients are in a tier whose paths" in event["message"] for event in aggregator.events)


def test_a_twin_that_any_client_may_train_counts_for_those_who_do_not_afford_it(fedoras: Callable[..., Any]) -> None:
    aggregator = fedoras(capacity=[1e15] * 6)
    low, middle, high = (aggregator.pool[f"tier{tier}"].cost.forward_macs for tier in (1, 2, 3))
    assert low < middle < high
    twins = {"capacity": [middle, middle, 1e15, 1e15, 1e15, 1e15], "twin_rounds": 1, "rounds": 1000}
    assert [fedoras(**twins, twin_clients=who).beyond_capacity for who in ("eligible", "all")] == [0, 2]
    short = fedoras(**{**twins, "rounds": aggregator.plan.rounds + 2}, twin_clients="all")  # trains two of three twins
    assert short.beyond_capacity == 0
