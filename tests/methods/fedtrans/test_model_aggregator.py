"""Section 4.3: similarity and soft aggregation."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.types import State
from fedscale_ext.methods.fedtrans import model_aggregator as ma
from fedscale_ext.methods.fedtrans.model_transformer import lift
from fedscale_ext.methods.fedtrans.params import FedTransParams
from fedscale_ext.models.cells import cell_of, cell_parameters

from ..harness import equal, trained
from .chain import BIRTHS, INSERTED, chain

# tensors that no widening splits
SHARED = ("stem.conv.weight", "head.linear.bias", "stem.bn.running_var")
CALM = settings(deadline=None, derandomize=True, max_examples=6)
ETAS, ROUNDS = st.floats(0.5, 1.0), st.integers(BIRTHS[-1] + 1, 300)


def mixed(j: int, states: list[State], round: int = 40, params: FedTransParams | None = None) -> State:
    params = params or FedTransParams()
    sims = ma.similarity_matrix(chain().specs, chain().lineage, params)
    weights = ma.mixing_weights(j, round, sims, chain().lineage, params)
    return ma.soft_aggregate(j, chain().specs, states, chain().lineage, weights, sims, params)


def constant(state: State, value: float) -> State:
    return {n: torch.full_like(t, value) if t.is_floating_point() else t.clone() for n, t in state.items()}


# ---- similarity ----


def test_similarity_by_hand() -> None:
    older, newer = {"a": 10, "b": 30}, {"a": 10, "b": 120, "new": 7}
    assert ma.similarity(older, newer, inherited=True) == pytest.approx((1 + 30 / 120 + 0) / 3)
    assert ma.similarity(older, newer, inherited=True, reduce="sum") == pytest.approx(1.25)
    # "otherwise" -1 per cell: a sum below zero is no similarity
    assert ma.similarity(older, newer, inherited=False) == 0
    assert ma.similarity(older, older, inherited=True) == 1


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_similarity_follows_the_lineage(reduce: str) -> None:
    matrix = ma.similarity_matrix(chain().specs, chain().lineage, FedTransParams(sim_reduce=reduce))  # type: ignore[arg-type]
    sizes = [cell_parameters(spec) for spec in chain().specs]
    assert np.array_equal(matrix, matrix.T)
    assert np.diag(matrix).tolist() == ([1] * 4 if reduce == "mean" else [2, 2, 3, 3])
    scores = [sizes[0][cell] / size if cell in sizes[0] else 0.0 for cell, size in sizes[2].items()]
    assert len(scores) == 3 and scores.count(0.0) == 1
    assert matrix[0, 2] == pytest.approx(np.mean(scores) if reduce == "mean" else np.sum(scores))
    # the nearer relative is the more similar one
    assert matrix[3, 3] > matrix[2, 3] > matrix[1, 3] > matrix[0, 3] > 0


def test_a_reinitialised_model_and_its_descendants_resemble_no_ancestor() -> None:
    lineage = [*chain().lineage[:2], replace(chain().lineage[2], root=2), replace(chain().lineage[3], root=2)]
    matrix = ma.similarity_matrix(chain().specs, lineage, FedTransParams())
    assert matrix[:2, 2:].tolist() == [[0, 0], [0, 0]]
    assert matrix[0, 1] > 0 and matrix[2, 3] > 0
    assert np.diag(matrix).tolist() == [1] * 4


# ---- mixing weights: the numerators of Eq 5 ----

SIMS = np.array([[1.0, 0.5, 0.4, 0.3], [0.5, 1.0, 0.6, 0.5], [0.4, 0.6, 1.0, 0.8], [0.3, 0.5, 0.8, 1.0]])


def weights(j: int, round: int, **switches: object) -> list[float]:
    return ma.mixing_weights(j, round, SIMS, chain().lineage, FedTransParams(**switches)).tolist()  # type: ignore[arg-type]


def test_equation_5s_numerators() -> None:
    assert weights(2, 25) == pytest.approx([0.98**25 * 0.4, 0.98**25 * 0.6, 1, 0])
    assert weights(0, 25) == [1, 0, 0, 0]


def test_decay_clock_counts_from_the_start_or_from_birth() -> None:
    assert weights(3, 300) == pytest.approx([0.98**300 * s for s in (0.3, 0.5, 0.8)] + [1])
    assert weights(3, 300, decay_clock="age") == pytest.approx([0.98**270 * s for s in (0.3, 0.5, 0.8)] + [1])


def test_decay_off_shares_for_ever() -> None:
    assert weights(3, 10**6, decay="off") == [0.3, 0.5, 0.8, 1]
    assert weights(3, 10**6)[:3] == pytest.approx([0, 0, 0])


def test_eta_is_the_decay_per_round() -> None:
    assert weights(1, 12, eta=0.5) == [0.5**12 * 0.5, 1, 0, 0]


def test_sharing_none_leaves_every_model_alone() -> None:
    assert [weights(j, 40, sharing="none") for j in range(4)] == np.eye(4).tolist()


def test_l2s_lets_larger_models_in() -> None:
    assert weights(1, 15, l2s=True) == pytest.approx([0.98**15 * 0.5, 1, 0.98**15 * 0.6, 0.98**15 * 0.5])


# ---- soft aggregation ----


@CALM
@given(eta=ETAS, round=ROUNDS, clock=st.sampled_from(["age", "global"]), decay=st.sampled_from(["on", "off"]))
def test_models_that_agree_are_a_fixed_point(eta: float, round: int, clock: str, decay: str) -> None:
    params = FedTransParams(eta=eta, decay_clock=clock, decay=decay)  # type: ignore[arg-type]
    for j, state in enumerate(chain().states):
        for name, value in mixed(j, chain().states, round, params).items():
            torch.testing.assert_close(value, state[name], rtol=1e-6, atol=1e-7)


def test_models_that_agree_stay_for_many_rounds() -> None:
    states = list(chain().states)
    for round in range(31, 61):
        states[3] = mixed(3, states, round)
    for name, value in states[3].items():
        torch.testing.assert_close(value, chain().states[3][name], rtol=1e-5, atol=1e-6)


@CALM
@given(
    eta=ETAS,
    round=ROUNDS,
    clock=st.sampled_from(["global", "age"]),
    values=st.lists(st.floats(-5, 5), min_size=4, max_size=4),
    j=st.integers(0, 3),
)
def test_shared_entries_take_equation_5s_mean_whose_coefficients_sum_to_one(
    eta: float, round: int, clock: Literal["global", "age"], values: list[float], j: int
) -> None:
    params = FedTransParams(eta=eta, decay_clock=clock)
    t = round if clock == "global" else round - BIRTHS[j]
    sims = ma.similarity_matrix(chain().specs, chain().lineage, params)
    shares = np.array([eta**t * sims[i, j] if i < j else float(i == j) for i in range(4)])
    shares /= shares.sum()
    states = [constant(state, value) for state, value in zip(chain().states, values, strict=True)]
    result = mixed(j, states, round, params)
    for name in SHARED:
        assert result[name].mean().item() == pytest.approx(float(shares @ values), rel=1e-5, abs=1e-5)


def test_a_model_without_elders_keeps_its_own_weights_bit_for_bit() -> None:
    states = [trained(state, "t", j) for j, state in enumerate(chain().states)]
    assert equal(mixed(0, states), states[0])
    for j in range(4):
        assert equal(mixed(j, states, params=FedTransParams(sharing="none")), states[j])


def test_sharing_moves_a_model_towards_its_lifted_elder() -> None:
    elder, child = trained(chain().states[0], "elder"), chain().states[1]
    result = mixed(1, [elder, child, *chain().states[2:]])
    lifted, _ = lift(chain().specs[0], elder, chain().lineage[1].steps)
    sim = ma.similarity_matrix(chain().specs, chain().lineage, FedTransParams())[0, 1]
    share = 0.98**40 * sim / (0.98**40 * sim + 1)
    for name, value in result.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, (1 - share) * child[name] + share * lifted[name], rtol=1e-5, atol=1e-6)


def test_inserted_cells_and_counters() -> None:
    states = [trained(state, "t", j) for j, state in enumerate(chain().states)]
    result = mixed(2, states)
    for name, value in result.items():
        unchanged = torch.equal(value, states[2][name])
        if cell_of(name) == INSERTED:
            assert unchanged, name  # no counterpart: own weights alone
        elif value.is_floating_point():
            assert not unchanged, name  # BatchNorm's buffers are mixed like weights
        else:
            assert value.dtype == torch.int64


def test_prefix_mixes_the_leading_part_and_keeps_the_rest() -> None:
    params = FedTransParams(align="prefix")
    states = [constant(state, value) for state, value in zip(chain().states, (0.0, 1.0, 1.0, 1.0), strict=True)]
    result = mixed(1, states, params=params)
    sim = ma.similarity_matrix(chain().specs, chain().lineage, params)[0, 1]
    inside = 1 / (1 + 0.98**40 * sim)
    wide = result["cells.c0.e01.conv.weight"]
    old = chain().states[0]["cells.c0.e01.conv.weight"].shape
    assert wide.shape[0] == 2 * old[0]
    torch.testing.assert_close(wide[: old[0]], torch.full(old, inside))
    assert (wide[old[0] :] == 1).all()


def test_lift_leaves_a_fresh_child_alone_and_prefix_does_not() -> None:
    fresh = chain().states[1]
    name = next(n for n in fresh if cell_of(n) == "c0" and fresh[n].shape[1:2] == (16,))  # columns were split
    torch.testing.assert_close(mixed(1, chain().states)[name], fresh[name])
    assert not torch.allclose(mixed(1, chain().states, params=FedTransParams(align="prefix"))[name], fresh[name])


def test_l2s_crops_larger_models() -> None:
    states = [constant(state, value) for state, value in zip(chain().states, (0.0, 1.0, 1.0, 1.0), strict=True)]
    params = FedTransParams(l2s=True, decay="off")
    sims = ma.similarity_matrix(chain().specs, chain().lineage, params)
    result = mixed(0, states, params=params)
    expected = sims[0, 1:].sum() / sims[0].sum()
    assert {name: tensor.shape for name, tensor in result.items()} == {n: t.shape for n, t in states[0].items()}
    for value in result.values():
        if value.is_floating_point():
            torch.testing.assert_close(value, torch.full_like(value, expected))
    assert equal(mixed(0, states, params=FedTransParams(decay="off")), states[0])


def test_equation_5_as_printed_shrinks_weights() -> None:
    """The documented error of the text: its coefficients sum to (1 + sum eta^t sim) / (1 + sum sim) < 1."""
    ones = [constant(state, 1.0) for state in chain().states]
    params = FedTransParams(normalise="literal")
    sims = ma.similarity_matrix(chain().specs, chain().lineage, params)
    result = mixed(3, ones, 40, params)
    expected = (1 + 0.98**40 * sims[:3, 3].sum()) / (1 + sims[:3, 3].sum())
    assert expected < 0.95
    for name in SHARED:
        assert result[name].mean().item() == pytest.approx(expected, rel=1e-6)
    counter = "stem.bn.num_batches_tracked"
    assert torch.equal(result[counter], ones[3][counter])


def test_equation_5_as_printed_lets_a_weight_vanish_in_200_rounds() -> None:
    """With one sibling of similarity 0.5: 1 -> 0.019; the default keeps 1."""
    spec, sims = chain().specs[0], np.array([[1.0, 0.5], [0.5, 1.0]])
    lineage = [ma.Lineage(), ma.Lineage()]
    ends = {}
    for normalise in ("literal", "decayed"):
        params = FedTransParams(normalise=normalise)  # type: ignore[arg-type]
        states = [constant(chain().states[0], 1.0)] * 2
        for round in range(1, 200):
            mixing = ma.mixing_weights(1, round, sims, lineage, params)
            states = [states[0], ma.soft_aggregate(1, [spec] * 2, states, lineage, mixing, sims, params)]
        ends[normalise] = states[1]["stem.conv.weight"].mean().item()
    assert ends["decayed"] == pytest.approx(1, rel=1e-5)
    assert ends["literal"] == pytest.approx(0.019, abs=5e-4)


@pytest.mark.parametrize("l2s", [False, True])
def test_equation_5_as_printed_divides_by_models_of_no_weight_too(l2s: bool) -> None:
    states = [trained(state, "literal", j) for j, state in enumerate(chain().states)]
    for j in range(4):
        none, hardly = (
            mixed(j, states, 40, FedTransParams(normalise="literal", l2s=l2s, eta=eta)) for eta in (0.0, 1e-6)
        )
        for name, value in none.items():
            torch.testing.assert_close(value, hardly[name], rtol=1e-5, atol=1e-7)
    alone = mixed(3, states, 40, FedTransParams(normalise="literal", sharing="none"))
    assert equal(alone, states[3])


def test_arguments_are_left_as_they_were() -> None:
    states = [trained(state, "t", j) for j, state in enumerate(chain().states)]
    before = [{name: value.clone() for name, value in state.items()} for state in states]
    for switches in ({}, {"align": "prefix"}, {"normalise": "literal"}, {"l2s": True}):
        for j in range(4):
            mixed(j, states, params=FedTransParams(**switches))  # type: ignore[arg-type]
    assert all(equal(state, copy) for state, copy in zip(states, before, strict=True))
