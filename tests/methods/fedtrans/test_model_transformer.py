"""Section 4.1 of FedTrans: degree of convergence, cell selection, function-preserving growth."""

import json

import numpy as np
import pytest
import torch
from growing import assert_same_function, grow, inputs, outputs, random_state, trained
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.fedtrans.model_transformer import (
    Transformation,
    _inserted,
    _shapes,
    activeness,
    affordable_cells,
    apply,
    degree_of_convergence,
    lift,
    mean_activeness,
    operations,
    select_cells,
    transform,
)
from fedscale_ext.models.cells import cell_of, cell_parameters
from fedscale_ext.models.families.genotype import EDGES, OPERATIONS, arch_string
from fedscale_ext.models.families.nasbench201 import Cell, cell_ids, make
from fedscale_ext.submodels import count_mean

SHAPE, CLASSES = (2, 6, 7), 4
BASE = models.named_spec("nasbench201_base", SHAPE, CLASSES)
slow_quick = settings(deadline=None, derandomize=True, max_examples=40)


@st.composite
def specs(draw):
    """Networks of one to three stages of up to two cells with any genotypes."""
    ids, stages, width = iter(range(99)), [], draw(st.integers(1, 4))
    widths = [width, *(draw(st.integers(1, 4)) for _ in range(draw(st.integers(0, 2))))]
    for stage_width in widths:
        genotypes = [
            arch_string({edge: draw(st.sampled_from(OPERATIONS)) for edge in EDGES})
            for _ in range(draw(st.integers(1, 2)))
        ]
        stages.append([Cell(f"c{next(ids)}", genotype, stage_width) for genotype in genotypes])
    return make(SHAPE, CLASSES, width, widths[1:], stages)


@given(spec=specs(), seed=st.integers(0, 1000), data=st.data())
@slow_quick
def test_chains_of_transformations_preserve_the_function_in_train_and_eval(spec, seed, data):
    options = {
        "policy": data.draw(st.sampled_from(["alternate", "widen_only", "deepen_only"])),
        "widen_factor": data.draw(st.sampled_from([1.25, 2.0, 2.5])),
        "deepen_count": data.draw(st.integers(1, 2)),
        "symmetry": data.draw(st.sampled_from(["random_split", "equal"])),
    }
    state = random_state(spec, seed)
    child_spec, child, _ = grow(spec, state, seed, 3, **options)
    assert_same_function(spec, state, child_spec, child, seed)


@pytest.mark.parametrize("train", [True, False])
def test_function_is_preserved_in_float32(train):
    state = random_state(BASE, 1, torch.float32)
    child_spec, child, _ = grow(BASE, state, 1, 3)
    assert all(tensor.dtype != torch.float64 for tensor in child.values())
    assert_same_function(BASE, state, child_spec, child, 1, [train], within=1e-5)


@given(spec=specs(), seed=st.integers(0, 1000))
@slow_quick
def test_lift_of_the_unchanged_parent_is_the_child_and_of_a_changed_one_its_function(spec, seed):
    state = random_state(spec, seed)
    child_spec, child, steps = grow(spec, state, seed, 3)
    lifted, covered = lift(spec, state, steps)
    assert lifted.keys() == child.keys() == models.layout(child_spec).keys()
    assert all(torch.equal(lifted[name], child[name]) for name in child)
    inserted = {cell for step in steps for cell in step.inserted}
    assert set(covered) == {name for name in child if cell_of(name) not in inserted}
    changed = random_state(spec, seed + 1)
    assert_same_function(spec, changed, child_spec, lift(spec, changed, steps)[0], seed, [True])


def test_lift_covers_for_the_shared_mean():
    state = random_state(BASE, 3)
    child_spec, child, steps = transform(
        BASE, state, ["c0", "c1"], {"c1": "widen"}, generator=np.random.default_rng(3), next_cell_id=2
    )
    moved = {name: tensor + 1 for name, tensor in child.items()}
    lifted, covered = lift(BASE, state, steps)
    mean = count_mean(moved, [(moved, None, 1.0), (lifted, covered, 1.0)])
    assert torch.equal(mean["cells.c2.e01.conv.weight"], moved["cells.c2.e01.conv.weight"])
    torch.testing.assert_close(mean["cells.c0.e01.conv.weight"], child["cells.c0.e01.conv.weight"] + 0.5)
    assert child_spec != BASE


@given(spec=specs(), seed=st.integers(0, 1000), symmetry=st.sampled_from(["random_split", "equal", "equal+noise"]))
@slow_quick
def test_replay_through_json_gives_the_same_child(spec, seed, symmetry):
    state = random_state(spec, seed)
    child_spec, child, steps = grow(spec, state, seed, 3, symmetry=symmetry)
    again = [Transformation.from_json(json.loads(json.dumps(step.to_json()))) for step in steps]
    assert tuple(again) == steps
    replayed_spec, replayed = spec, state
    for step in again:
        replayed_spec, replayed = apply(replayed_spec, replayed, step)
    assert replayed_spec == child_spec
    assert all(torch.equal(replayed[name], child[name]) for name in child)


@given(factor=st.sampled_from([1.01, 1.25, 1.5, 2.0, 3.0]), seed=st.integers(0, 1000))
@slow_quick
def test_the_map_keeps_the_prefix_and_its_shares_sum_to_one(factor, seed):
    _, _, (step,) = transform(
        BASE,
        random_state(BASE, 0),
        ["c1"],
        {},
        widen_factor=factor,
        generator=np.random.default_rng(seed),
        next_cell_id=2,
    )
    assert len(step.g) == max(17, round(factor * 16))
    assert step.g[:16] == tuple(range(16))
    assert set(step.g) == set(range(16))
    np.testing.assert_allclose(np.bincount(step.g, weights=step.s), np.ones(16), atol=1e-12)
    assert min(step.s) > 0


def test_rows_and_batchnorm_are_copied_and_the_parent_is_the_prefix():
    state = random_state(BASE, 4)
    _, child, (step,) = transform(BASE, state, ["c0"], {}, generator=np.random.default_rng(4), next_cell_id=2)
    g = list(step.g)
    for name in ("cells.c0.e03.adapter.weight", "cells.c0.e01.conv.weight"):
        parent = state[name] if name in state else torch.eye(8, dtype=torch.float64)[..., None, None]
        assert torch.equal(child[name], parent[g])
    for part in ("weight", "bias", "running_mean", "running_var"):
        assert torch.equal(child[f"cells.c0.e13.bn.{part}"], state[f"cells.c0.e13.bn.{part}"][g])
    columns = state["reductions.0.a.conv.weight"][:, g] * torch.tensor(step.s).double()[:, None, None]
    torch.testing.assert_close(child["reductions.0.a.conv.weight"], columns, atol=1e-15, rtol=1e-6)


def replica_distance(symmetry):
    state = random_state(BASE, 5)
    spec, child, (step,) = transform(
        BASE, state, ["c0"], {}, symmetry=symmetry, generator=np.random.default_rng(5), next_cell_id=2
    )
    after = trained(spec, child, 5)
    first, replica = step.g[-1], len(step.g) - 1
    rows = after["cells.c0.e01.conv.weight"]
    groups = [i for i, origin in enumerate(step.g) if origin == first]
    assert replica in groups
    return float((rows[replica].sum() - rows[first].sum()).abs()), float(
        (rows[first] - state["cells.c0.e01.conv.weight"][first]).abs().max()
    )


def test_replicas_diverge_under_a_random_split_and_never_under_an_equal_one():
    for symmetry, apart in (("random_split", True), ("equal", False), ("equal+noise", True)):
        distance, moved = replica_distance(symmetry)
        assert moved > 1e-3  # it trains at all
        assert distance > 1e-4 if apart else distance < 1e-12


def test_noise_disturbs_replicas_only_and_little():
    state, x = random_state(BASE, 6), inputs(BASE, 6)
    make_child = {
        symmetry: transform(
            BASE, state, ["c0"], {}, symmetry=symmetry, generator=np.random.default_rng(6), next_cell_id=2
        )
        for symmetry in ("equal", "equal+noise")
    }
    spec, noisy, _ = make_child["equal+noise"]
    _, equal, _ = make_child["equal"]
    rows = "cells.c0.e01.conv.weight"
    assert torch.equal(noisy[rows][:8], equal[rows][:8])
    spread = (noisy[rows][8:] - equal[rows][8:]).std() / state[rows].std()
    assert 0.03 < spread < 0.07
    expected = outputs(spec, equal, x, False)
    assert 0 < (outputs(spec, noisy, x, False) - expected).abs().max() < 0.05 * expected.abs().max()


def test_inserted_cells_learn():
    state = random_state(BASE, 7)
    spec, child, (step,) = transform(
        BASE,
        state,
        ["c1"],
        {},
        policy="deepen_only",
        deepen_count=2,
        generator=np.random.default_rng(7),
        next_cell_id=5,
    )
    assert cell_ids(spec) == ("c0", "c1", "c5", "c6") and step.inserted == ("c5", "c6")
    after = trained(spec, child, 20)
    for name in ("cells.c5.e01.conv.weight", "cells.c6.e13.bn.weight"):
        assert (after[name] - child[name]).abs().max() > 1e-4


def test_the_child_shares_no_memory_with_its_parent():
    state = random_state(BASE, 8)
    _, child, _ = transform(BASE, state, ["c1"], {}, generator=np.random.default_rng(8), next_cell_id=2)
    assert not {t.data_ptr() for t in state.values()} & {t.data_ptr() for t in child.values()}


def test_what_is_kept_between_lifts_is_what_a_first_lift_draws():
    state = random_state(BASE, 1)
    child, first, steps = transform(
        BASE, state, ["c0"], {"c0": "widen"}, generator=np.random.default_rng(2), next_cell_id=3
    )
    again, _ = lift(BASE, state, steps)
    for tensor in first.values():
        tensor.mul_(0)  # as a round's training would change the child
    _inserted.cache_clear()
    _shapes.cache_clear()
    anew, _ = lift(BASE, state, steps)
    assert steps[0].op == "deepen" and again.keys() == anew.keys() == models.initial_state(child, 1).keys()
    assert list(again) == list(anew) and all(torch.equal(again[name], anew[name]) for name in anew)
    cached, _ = lift(BASE, state, steps)
    assert all(torch.equal(cached[name], anew[name]) for name in anew)


def test_cells_alternate_beginning_with_widen():
    last = {"a": None, "b": "widen", "c": "deepen"}
    assert operations(["a", "b", "c", "d"], last) == [("a", "widen"), ("b", "deepen"), ("c", "widen"), ("d", "widen")]
    assert operations(["a", "b"], last, "deepen_only") == [("a", "deepen"), ("b", "deepen")]


def test_degree_of_convergence_by_hand():
    # slopes over 2 rounds, newest 3: (6-3)/2, (4-2)/2, (3-2)/2
    losses = [100.0, 6.0, 4.0, 3.0, 2.0, 2.0]
    assert degree_of_convergence(losses, gamma=3, delta=2) == pytest.approx((1.5 + 1.0 + 0.5) / 3)
    assert degree_of_convergence(losses[1:], gamma=3, delta=2) == pytest.approx(1.0)
    assert degree_of_convergence(losses[2:], gamma=3, delta=2) is None
    assert degree_of_convergence([1.0, 2.0], gamma=1, delta=1) == -1.0


def test_activeness_by_hand():
    before = {name: torch.ones_like(tensor) for name, tensor in models.initial_state(BASE, 0).items()}
    after = {name: tensor.clone() for name, tensor in before.items()}
    after["cells.c0.e01.conv.weight"] *= 1.5
    after["cells.c1.e13.bn.bias"] *= 3
    after["cells.c1.e13.bn.running_mean"] *= 100  # a buffer: does not count
    after["head.linear.weight"] *= 100  # not a cell
    counts = cell_parameters(BASE)
    expected = {"c0": (0.25 * 576 / counts["c0"]) ** 0.5, "c1": (4 * 16 / counts["c1"]) ** 0.5}
    assert activeness(BASE, before, after) == pytest.approx(expected)
    assert mean_activeness([{"c0": 1.0}, {"c0": 2.0}]) == {"c0": 1.5}


def test_a_cell_without_weights_has_no_activeness():
    spec = make(SHAPE, CLASSES, 2, [], [[Cell("c0", "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|", 2)]])
    state = models.initial_state(spec, 0)
    assert cell_parameters(spec) == {"c0": 0}
    assert activeness(spec, state, state) == {"c0": 0.0}


def test_selection_is_at_or_above_alpha_of_the_largest():
    assert select_cells({"a": 0.9, "b": 1.0, "c": 0.89}, 0.9) == ["a", "b"]
    assert select_cells({"a": 0.2, "b": 0.2}, 1.0) == ["a", "b"]


def test_the_least_active_cells_are_left_out_until_the_child_fits():
    active = {"c0": 0.5, "c1": 0.4}
    state, rng = random_state(BASE, 0), np.random.default_rng(0)

    def child_macs(cells):
        return models.cost(transform(BASE, state, cells, {}, generator=rng, next_cell_id=2)[0]).forward_macs

    both, first = child_macs(["c0", "c1"]), child_macs(["c0"])
    assert affordable_cells(BASE, ["c0", "c1"], active, {}, both, next_cell_id=2) == ["c0", "c1"]
    assert affordable_cells(BASE, ["c0", "c1"], active, {}, both - 1, next_cell_id=2) == ["c0"]
    assert affordable_cells(BASE, ["c0", "c1"], active, {}, first - 1, next_cell_id=2) is None


def test_cell_names_and_counts():
    assert cell_of("cells.c12.e01.conv.weight") == "c12"
    assert cell_of("stem.conv.weight") is None and cell_of("reductions.0.a.conv.weight") is None
    assert cell_parameters(BASE) == {"c0": 2 * 576 + 4 * 8, "c1": 2 * 2304 + 4 * 16}


def test_families_without_cells_are_refused():
    spec = models.named_spec("cnn_small", SHAPE, CLASSES)
    with pytest.raises(UserError, match="no cells"):
        cell_parameters(spec)
