"""When, where and how FedTrans's aggregator grows models and hands them out, by its hooks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.streams import torch_stream
from fedscale_ext.methods.fedtrans.aggregator import FedTransAggregator
from fedscale_ext.models.cells import cell_family

from ..harness import CLASSES, SHAPE, aggregate, equal, play, pool_states, server, trained_states, updates_for


def fedtrans(**keys: Any) -> Any:
    """A server whose models may have a child after two rounds of their own."""
    return server(FedTransAggregator, "fedtrans", **{"gamma": 1, "delta": 1, **keys})


def grown(count: int, **keys: Any) -> tuple[Any, int]:
    """A server that has played until it has so many models, and its last round."""
    aggregator = fedtrans(**keys)
    for round in range(1, 60):
        play(aggregator, round)
        if len(aggregator.pool) == count:
            return aggregator, round
    raise AssertionError(f"{len(aggregator.pool)} models after 59 rounds")


def cells(aggregator: Any, key: str) -> dict[str, int]:
    """Widths of a model's cells by id."""
    spec = aggregator.pool[key].spec
    return {cell: cell_family(spec).cell_group(spec, cell)[1] for cell in cell_family(spec).cell_ids(spec)}


def written(folder: Path, spec: ModelSpec) -> str:
    """The value of ``model`` for a spec."""
    (folder / "spec.json").write_text(json.dumps(spec.to_json()))
    return str(folder / "spec.json")


def output(model: Any) -> torch.Tensor:
    module = models.build(model.spec).eval()
    module.load_state_dict(model.state)
    with torch.no_grad():
        return module(torch.randn(4, 1, 8, 8, generator=torch_stream("x")))


def test_one_model_is_fedavg() -> None:
    aggregator = fedtrans(beta=-1e9)
    updates = updates_for(aggregator, aggregator.assign(1, np.array([2, 5])))
    assert [(update.client, update.item.model) for update in updates] == [(2, "m0"), (5, "m0")]
    states = trained_states(aggregator, 1, updates)
    aggregate(aggregator, 1, updates)
    name = "stem.conv.weight"
    mean = (states[2][name].double() * 20 + states[5][name].double() * 50) / 70
    torch.testing.assert_close(aggregator.pool["m0"].state[name].double(), mean, rtol=1e-6, atol=1e-7)


# ---- assignment ----


def test_each_client_trains_and_is_served_up_to_the_largest_model_that_it_affords() -> None:
    aggregator, round = grown(3)
    small, middle, large = (model.cost.forward_macs for model in aggregator.pool)
    assert small < middle < large
    aggregator.capacity = np.array([0, small, middle - 1, middle, large, 1e15])
    largest = {1: "m0", 2: "m0", 3: "m0", 4: "m1", 5: "m2", 6: "m2"}
    seen: dict[int, set[str]] = {client: set() for client in largest}
    for later in range(round + 1, round + 40):
        for item in aggregator.assign(later, np.arange(1, 7)):
            seen[item.client].add(item.model)
    assert {client: max(keys) for client, keys in seen.items()} == largest
    assert seen[5] == {"m0", "m1", "m2"}
    assert list(aggregator.evaluation_plan().serve) == list(largest.values())


def messages(aggregator: Any) -> list[str]:
    return [event["message"] for event in aggregator.events]


def test_who_affords_less_than_the_first_model_is_named_and_trains_it_all_the_same() -> None:
    macs = fedtrans().pool["m0"].cost.forward_macs
    (begun,) = messages(fedtrans(capacity=[macs] * 6))
    assert begun.startswith("fedtrans begins with m0 (")
    aggregator = fedtrans(capacity=[macs - 1, macs, 1.0, macs, macs, macs])
    weak, _ = messages(aggregator)
    assert weak.startswith(f"2 of 6 clients afford less than the {macs:,} MACs per sample")
    assert weak.endswith("they would train it all the same: 1, 3") and aggregator.beyond_capacity == 2
    assert [item.model for item in aggregator.assign(1, np.arange(1, 7))] == ["m0"] * 6


def test_utilities_steer_assignment_and_serving() -> None:
    aggregator, _ = grown(2)
    aggregator.utilities = np.array([[50.0, 0.0]] * 3 + [[0.0, 50.0]] * 3)
    expected = ["m0"] * 3 + ["m1"] * 3
    assert [item.model for item in aggregator.assign(99, np.arange(1, 7))] == expected
    assert list(aggregator.evaluation_plan().serve) == expected


def test_a_model_without_participants_moves_only_by_sharing() -> None:
    aggregator, round = grown(2)
    aggregator.exhausted = True
    moved = []
    for trained in ("m0", "m1"):
        aggregator.utilities = np.array([[50.0, 0.0] if trained == "m0" else [0.0, 50.0]] * 6)
        before, round = pool_states(aggregator), round + 1
        play(aggregator, round)
        moved.append([not equal(before[key], aggregator.pool[key].state) for key in ("m0", "m1")])
    assert moved == [[True, True], [False, True]]


# ---- when ----


def test_a_child_comes_after_gamma_plus_delta_flat_rounds_and_not_before() -> None:
    aggregator = fedtrans(gamma=3, delta=4)
    sizes = []
    for round in range(1, 8):
        play(aggregator, round)
        sizes.append(len(aggregator.pool))
    assert sizes == [1] * 6 + [2]


@pytest.mark.parametrize(("beta", "count"), [(0.05, 1), (0.15, 2)])
def test_a_falling_loss_waits_for_its_slope_to_reach_beta(beta: float, count: int) -> None:
    aggregator = fedtrans(gamma=2, delta=2, beta=beta)
    for round in range(1, 5):
        doc = play(aggregator, round, losses=5 - 0.1 * round)["doc"]
    assert doc == pytest.approx(0.1)
    assert len(aggregator.pool) == count


def test_rounds_without_the_newest_model_do_not_count_for_it() -> None:
    aggregator, round = grown(2)
    aggregator.utilities = np.array([[50.0, 0.0]] * 6)
    for later in range(round + 1, round + 6):
        assert "activeness" not in play(aggregator, later)
    assert aggregator.losses[1] == [] and len(aggregator.losses[0]) == round + 5
    assert len(aggregator.pool) == 2


# ---- where ----


def test_activeness_is_averaged_over_the_last_t_rounds() -> None:
    aggregator = fedtrans(T=3, beta=-1e9)
    seen = [play(aggregator, round)["activeness"] for round in range(1, 6)]
    assert list(aggregator.active) == seen[2:]
    aggregator.active.clear()
    # one round in which c1 led and two in which c0 did, by more
    aggregator.active.extend([{"c0": 1.0, "c1": 1.5}, {"c0": 1.0, "c1": 0.5}, {"c0": 1.0, "c1": 0.5}])
    assert aggregator._select_cells(6) == ["c0"]


@pytest.mark.parametrize(("alpha", "selected"), [(0.9, ["c1"]), (0.5, ["c0", "c1"])])
def test_alpha_is_the_share_of_the_largest_activeness_that_selects(alpha: float, selected: list[str]) -> None:
    aggregator = fedtrans(alpha=alpha)
    aggregator.active.append({"c0": 0.6, "c1": 1.0})
    assert aggregator._select_cells(1) == selected


def test_the_cap_leaves_out_cells_until_the_child_fits() -> None:
    unlimited, _ = grown(2, alpha=0.0)
    both = unlimited.pool["m1"].cost.forward_macs
    exact, _ = grown(2, alpha=0.0, capacity=[both] * 6)
    less, _ = grown(2, alpha=0.0, capacity=[both - 1] * 6)
    assert exact.pool["m1"].spec == unlimited.pool["m1"].spec
    assert len(less.lineages[1].steps) == 1
    assert less.pool["m1"].cost.forward_macs < both


# ---- how ----


def test_a_child_computes_its_parents_function_and_cells_alternate() -> None:
    aggregator = fedtrans(alpha=0.0)
    children, round = [], 0
    while len(aggregator.pool) < 4:
        round += 1
        internals = play(aggregator, round)
        if "child" in internals:
            assert internals["selected_cells"] == list(cells(aggregator, f"m{len(children)}"))
            children.append(internals["child"]["steps"])
            torch.testing.assert_close(
                output(aggregator.pool.newest()), output(aggregator.pool[f"m{len(children) - 1}"]), rtol=1e-3, atol=1e-4
            )
    assert children[0] == ["widen c0", "widen c1"]
    assert children[1] == ["deepen c0", "deepen c1"]
    # the inserted cells begin with widening, the others are at it again
    assert sorted(children[2]) == [f"widen c{number}" for number in range(4)]
    assert aggregator.lineage()["m2"]["parent"] == "m1"
    assert aggregator.lineage()["m3"] == {"parent": "m2", "birth": round, "steps": children[2]}


@pytest.mark.parametrize(("factor", "width"), [(2.0, 16), (1.25, 10), (3.0, 24)])
def test_widen_factor(factor: float, width: int) -> None:
    aggregator, _ = grown(2, alpha=0.0, widen_factor=factor)
    assert (cells(aggregator, "m0")["c0"], cells(aggregator, "m1")["c0"]) == (8, width)


@pytest.mark.parametrize("count", [1, 2])
def test_deepen_count_inserts_so_many_cells_with_ids_of_their_own(count: int) -> None:
    aggregator, _ = grown(3, alpha=0.0, transform_policy="deepen_only", deepen_count=count)
    sizes = [len(cells(aggregator, key)) for key in ("m0", "m1", "m2")]
    assert sizes == [2, 2 + 2 * count, (2 + 2 * count) * (1 + count)]


@pytest.mark.parametrize(("first", "second", "new"), [
    ("c0", "c1", ["c2", "c3"]), ("c1", "c2", ["c3", "c4"]), ("x", "c3", ["c4", "c5"]), ("x", "c02", ["c2", "c3"]),
])  # fmt: skip
def test_inserted_cells_have_free_ids_whatever_the_first_models_are(
    tmp_path: Path, first: str, second: str, new: list[str]
) -> None:
    spec = models.named_spec("nasbench201_base", SHAPE, CLASSES)
    stages = [[(name, *stage[0][1:])] for name, stage in zip((first, second), spec["stages"], strict=True)]
    model = written(tmp_path, spec.replace(stages=stages))
    aggregator, _ = grown(3, alpha=0.0, transform_policy="deepen_only", model=model)
    assert list(cells(aggregator, "m1")) == [first, new[0], second, new[1]]
    assert cells(aggregator, "m2").keys() > cells(aggregator, "m1").keys() and len(cells(aggregator, "m2")) == 8


@pytest.mark.parametrize("symmetry", ["random_split", "equal", "equal+noise"])
def test_symmetry_decides_how_replicas_share_and_differ(symmetry: str) -> None:
    aggregator, _ = grown(2, alpha=0.0, symmetry=symmetry)
    step = aggregator.lineages[1].steps[0]
    assert np.allclose(step.s, 1 / np.bincount(step.g)[list(step.g)]) == (symmetry != "random_split")
    rows = aggregator.pool["m1"].state["cells.c0.e01.conv.weight"]
    copied = torch.equal(rows[8:], rows[list(step.g)[8:]])
    assert copied == (symmetry != "equal+noise")


def test_a_model_without_cells_is_refused_before_anybody_trains() -> None:
    aggregator = fedtrans()
    aggregator.args.model = "cnn_small"
    aggregator.pool.load_state({}, [])
    with pytest.raises(UserError, match="no cells to widen or deepen"):
        aggregator.init_state(None, aggregator.task)


@pytest.mark.parametrize(
    ("name", "fields"), [("nasbench201_base", {"stages": [[], []]}), ("vit_small", {"blocks": []})]
)
def test_a_spec_without_cells_is_refused_before_anybody_trains(
    tmp_path: Path, name: str, fields: dict[str, Any]
) -> None:
    spec = models.named_spec(name, SHAPE, CLASSES).replace(**fields)
    with pytest.raises(UserError, match="no cells to widen or deepen"):
        fedtrans(model=written(tmp_path, spec))


# ---- sharing, stop, internals ----


def test_recorded_coefficients_are_equation_5s_and_sum_to_less_as_it_is_printed() -> None:
    recorded = {}
    for normalise in ("decayed", "literal"):
        aggregator, round = grown(2, normalise=normalise)
        aggregator.exhausted = True
        for age in range(1, 6):
            internals = play(aggregator, last := round + age)
        recorded[normalise] = internals["mixing"][1]
        sim = internals["similarity"][0][1]
    share = 0.98**last * sim
    assert recorded["decayed"] == pytest.approx([share / (1 + share), 1 / (1 + share)])
    assert recorded["literal"] == pytest.approx([share / (1 + sim), 1 / (1 + sim)])
    aggregator, round = grown(2, normalise="literal", eta=0.0)
    internals = play(aggregator, round + 1)
    assert internals["mixing"][1] == pytest.approx([0, 1 / (1 + internals["similarity"][0][1])])


def test_stop_converged_waits_until_all_models_have_and_none_can_grow() -> None:
    aggregator, _ = grown(2, stop="converged")
    flat, falling = [1.0] * 4, [4.0, 3.0, 2.0, 1.0]
    aggregator.losses = [flat, flat]
    assert aggregator.finished(9) is None
    aggregator.exhausted = True
    assert aggregator.finished(9) == "no model can grow further and all have converged"
    for losses in ([falling, flat], [flat, falling], [flat, [1.0]]):
        aggregator.losses = losses
        assert aggregator.finished(9) is None, losses


def test_stop_converged_looks_at_gamma_slopes_over_delta_rounds() -> None:
    aggregator = fedtrans(stop="converged", gamma=2, delta=2)
    aggregator.exhausted, aggregator.losses = True, [[3.0, 1.0, 1.0, 1.0]]
    assert aggregator.finished(9) is None  # (1 + 0) / 2; one slope, or slopes over one round, are flat
    aggregator.losses = [[1.0, 1.0, 1.0, 1.0]]
    assert aggregator.finished(9) is not None


def test_samples_are_recorded_so_that_losses_of_models_can_be_recomputed() -> None:
    aggregator = fedtrans()
    losses = {client: float(client) for client in range(1, 7)}
    seen = play(aggregator, 1, losses)
    assert seen["samples"] == {str(client): 10 * client for client in losses}
    assert aggregator.losses[0] == [
        pytest.approx(np.average(list(losses.values()), weights=list(seen["samples"].values())))
    ]


@pytest.mark.parametrize(("least", "warned"), [(0, False), (3, False), (4, True)])
def test_a_job_too_short_to_serve_a_model_that_grew_says_so(least: int, warned: bool) -> None:
    """The first child is born after round 7 at the earliest, and trains in three rounds of ten."""
    _, *warnings = messages(fedtrans(gamma=3, delta=4, rounds=10, serve_min_rounds=least))
    sentence = (
        "no model that grows is served in 10 rounds: it would train in 3 at most, and fedtrans.serve_min_rounds is 4"
    )
    assert warnings == [sentence] * warned


@pytest.mark.parametrize(
    ("rounds", "notices"),
    [
        (6, ["the model will not grow in 6 rounds: that takes the losses of 7, fedtrans.gamma + fedtrans.delta"]),
        (7, ["no model that grows trains in 7 rounds: the first comes after round 7, fedtrans.gamma + fedtrans.delta"]),
        (8, []),
    ],
)
def test_a_job_too_short_for_its_model_to_grow_says_so(rounds: int, notices: list[str]) -> None:
    """A child that is born in the last round is served, but never trained."""
    _, *warnings = messages(fedtrans(gamma=3, delta=4, rounds=rounds))
    assert warnings == notices
