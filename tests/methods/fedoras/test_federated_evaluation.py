"""Federated evaluation: who judges what, with which operators, and what comes of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.methods.fedoras.federated_evaluation import (
    agreement_by_rounds,
    call,
    check_afforded,
    kendall_tau,
    mean_scores,
    minimal_supernet,
)
from fedscale_ext.methods.fedoras.path_sampling import path_macs

from .spaces import drawn_table, every_path


def test_the_minimal_supernet_holds_the_paths_operators_alone() -> None:
    spec = models.named_spec("cnn_tiny", (2, 18, 20), 4)
    first, last = tuple(held[0] for held in spec["ops"]), tuple(held[-1] for held in spec["ops"])
    ops = minimal_supernet(spec["ops"], [last, first, first])
    assert ops == tuple(zip(first, last, strict=True))  # in the order of the whole


@given(st.integers(0, 40), st.integers(1, 12))
def test_clients_judge_within_their_budgets_and_every_path_is_judged(seed: int, clients: int) -> None:
    tables, rng = drawn_table(4, 5), np.random.default_rng(seed)
    paths = [tables.path(columns) for columns in rng.permutation(every_path(tables))[:20]]
    macs = path_macs(tables, np.array([tables.indices(path) for path in paths]))
    budgets = rng.uniform(0.0, macs.max(), 10)
    budgets[seed % 10] = macs.max()  # one client affords everything
    budgets[(seed + 1) % 10] = -1.0  # one has no validation data
    able = macs <= budgets[:, None]
    drawn = call(tables, paths, able, clients, stream(seed))
    rng = stream(seed)  # one who affords all is drawn in the place of the last
    expected = rng.permutation(np.flatnonzero(budgets >= macs.min()))[:clients]
    if budgets[expected].max() < macs.max():
        expected[-1] = rng.choice(np.flatnonzero(budgets >= macs.max()))
    assert drawn.clients.tolist() == (expected + 1).tolist()
    assert len(set(drawn.clients.tolist())) == len(drawn.clients) == min(clients, (budgets >= macs.min()).sum())
    assert (drawn.judges == (macs <= budgets[drawn.clients - 1][:, None])).all()
    assert drawn.judges.any(0).all()
    assert drawn.judges.any(1).all()
    again = call(tables, paths, able, clients, stream(seed))
    assert again.clients.tolist() == drawn.clients.tolist()


@given(st.integers(0, 60), st.integers(1, 12), st.floats(0.02, 0.6))
def test_every_path_that_somebody_can_judge_is_judged(seed: int, clients: int, share: float) -> None:
    tables, rng = drawn_table(4, 5), np.random.default_rng(seed)
    paths = [tables.path(columns) for columns in rng.permutation(every_path(tables))[:20]]
    able = rng.random((30, 20)) < share
    able[seed % 30, seed % 20] = True
    drawn = call(tables, paths, able, clients, stream(seed))
    assert (drawn.judges == able[drawn.clients - 1]).all() and drawn.judges.any(1).all()
    assert (drawn.judges.any(0) == able.any(0)).all()
    assert len(set(drawn.clients.tolist())) == len(drawn.clients) >= min(clients, able.any(1).sum())
    if len(drawn.clients) > clients:  # nobody's paths have all other judges
        assert all((able[np.delete(drawn.clients, index) - 1].sum(0) == 0)[able.any(0)].any()
                   for index in range(len(drawn.clients)))  # fmt: skip
    assert drawn.ops == minimal_supernet(tables.ops, [path for path, by in zip(paths, able.any(0), strict=True) if by])


def test_further_judges_are_those_of_the_most_paths() -> None:
    tables = drawn_table(4, 5)
    paths = [tables.path(columns) for columns in every_path(tables)[:3]]
    able = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1]], dtype=bool)
    drawn = [call(tables, paths, able, 1, stream(seed)).clients.tolist() for seed in range(20)]
    begun = [clients for clients in drawn if clients[0] == 1]
    assert begun and all(clients == [1, 4] for clients in begun)


def test_nobody_affords_a_path() -> None:
    check_afforded(np.array([5.0, 15.0]), np.array([15.0, -1.0]))
    with pytest.raises(UserError, match=r"no client with validation data affords a path of 1\.6e-05 MMACs"):
        check_afforded(np.array([5.0, 16.0]), np.array([15.0, -1.0]))


def test_scores_are_means_over_examples() -> None:
    rng = np.random.default_rng(1)
    correct = [rng.integers(0, 2, size).astype(float) for size in (3, 10, 1)]
    sums = np.array([[client.sum(), client.sum()] for client in correct])
    examples = np.array([[3.0, 3.0], [10.0, 0.0], [1.0, 1.0]])
    sums[1, 1] = 0.0  # the second client cannot run the second path
    assert mean_scores(sums, examples) == pytest.approx(
        [np.concatenate(correct).mean(), np.concatenate([correct[0], correct[2]]).mean()]
    )
    assert np.isnan(mean_scores(np.zeros((2, 1)), np.zeros((2, 1)))).all()


def test_more_rounds_agree_better_with_the_central_ranking() -> None:
    rng = np.random.default_rng(1)
    quality = np.linspace(0.2, 0.8, 30)
    examples = np.full((60, 30), 20.0)
    sums = rng.binomial(20, np.clip(quality + rng.normal(0, 0.1, (60, 30)), 0, 1)).astype(float)
    agreement = agreement_by_rounds(sums, examples, mean_scores(sums, examples), 10)
    assert len(agreement) == 6
    assert agreement[-1] == pytest.approx(1)
    assert agreement[0] < agreement[3] < 1
    assert len(agreement_by_rounds(sums, examples, quality, 25)) == 3  # a last round of ten clients


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=15))
def test_tau_counts_pairs(points: list[tuple[int, int]]) -> None:
    a, b = np.array(points, dtype=float).T
    signs = [np.sign(np.subtract.outer(x, x))[np.triu_indices(len(x), 1)] for x in (a, b)]
    untied = np.sqrt(np.prod([np.abs(sign).sum() for sign in signs]))
    expected = (signs[0] * signs[1]).sum() / untied if untied else np.nan
    assert kendall_tau(a, b) == pytest.approx(expected, nan_ok=True)


def test_tau_of_rankings() -> None:
    assert kendall_tau([1, 2, 3, 4], [10, 20, 30, 99]) == pytest.approx(1)
    assert kendall_tau([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert kendall_tau([1, np.nan, 3, 4], [1, 2, 5, np.inf]) == pytest.approx(1)
    assert np.isnan(kendall_tau([1, 2], [3, np.nan]))
