"""What a client is sent: within the bytes, a path within the MACs, and no operator more often than its like."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedscale_ext import models
from fedscale_ext.methods.fedoras.path_sampling import cheapest
from fedscale_ext.methods.fedoras.subspace_sampling import (
    held_by,
    least_bytes,
    operators,
    sample_subspace,
    total_bytes,
)
from fedscale_ext.models.supernet.family import restricted, tables

from .made_up import table

TINY = models.named_spec("cnn_tiny", (1, 20, 20), 5)


def test_operators_of_one_size_are_sent_as_often() -> None:
    costs = table([[0, 2, 2, 2], [0, 2, 2, 2], [0, 2, 2, 2]])
    counts = sum(sample_subspace(costs, 10 + 8, np.random.default_rng(seed)).astype(int) for seed in range(3000))
    assert (counts[:, 0] == 3000).all()
    assert counts[:, 1:].sum() == 4 * 3000
    # draws without replacement vary less than independent ones: the test is on the safe side for a uniform draw
    assert stats.chisquare(counts[:, 1:].ravel()).pvalue > 1e-3
    assert counts[:, 1:].std() > 0


def test_larger_operators_are_left_out_only_where_they_are_the_next_to_come() -> None:
    """Taking what still fits after that would favour small ones: here they would be sent in every round."""
    costs = table([[0, 1, 1], [0, 60, 60]])
    sent = np.array([sample_subspace(costs, 10 + 63, np.random.default_rng(seed)) for seed in range(2000)])
    assert (sent[:, :, 0]).all()
    large, small = sent[:, 1, 1:].mean(), sent[:, 0, 1:].mean()
    assert large == 0.5 and 0.63 < small < 0.7


@given(part=st.floats(0.12, 1.0), seed=st.integers(0, 999))
def test_a_subspace_of_a_real_space_is_within_its_bytes(part: float, seed: int) -> None:
    costs = tables(TINY)
    budget = int(part * total_bytes(costs))
    held = sample_subspace(costs, budget, np.random.default_rng(seed))
    spec = restricted(TINY, operators(costs, held))
    assert models.cost(spec).bytes <= budget and all("identity" in names for names in spec["ops"])
    assert (held_by(costs, spec) == held).all()
    assert held.all() == (budget == total_bytes(costs))
    assert not models.searched(spec) or cheapest(costs, held) == costs.fixed_macs


def test_the_sizes_are_those_of_the_models() -> None:
    costs = tables(TINY)
    assert total_bytes(costs) == models.cost(TINY).bytes
    assert least_bytes(costs) == costs.fixed_bytes
    rnn = tables(models.named_spec("rnn", (1, 1, 5), 90))
    assert least_bytes(rnn) == rnn.fixed_bytes + rnn.bytes[0].max()  # the first layer has no free operator


def test_a_layer_without_a_free_operator_gets_one_that_the_budget_of_macs_affords() -> None:
    costs = table([[5, 6, 30], [4, 20], [0, 9]])
    first = {
        tuple(map(tuple, operators(costs, sample_subspace(costs, 10 + 30 + 20, np.random.default_rng(seed), 10 + 11))))
        for seed in range(300)
    }
    for held in first:
        assert set(held[0]) & {"a", "b"} and "a" in held[1] and "a" in held[2]
    assert any("b" in held[0] and "a" not in held[0] for held in first)
    for seed in range(100):
        held = sample_subspace(costs, 10 + 30 + 20, np.random.default_rng(seed), 10 + 9)
        assert cheapest(costs, held) == 19


def test_what_is_not_supported_is_not_sent_and_too_small_a_budget_is_an_error() -> None:
    costs = table([[0, np.inf, 3], [2, 4, np.inf]], [[0, 1, 3], [2, 4, 1]])
    held = sample_subspace(costs, 10_000, np.random.default_rng(0))
    assert held.tolist() == [[True, False, True], [True, True, False]]
    assert least_bytes(costs) == 14
    for seed in range(20):
        sample_subspace(costs, 14, np.random.default_rng(seed))
    with pytest.raises(ValueError, match="11 bytes do not hold an operator for each layer"):
        sample_subspace(costs, 11, np.random.default_rng(0))
    with pytest.raises(ValueError, match="below the cheapest path"):
        sample_subspace(costs, 14, np.random.default_rng(0), 11)
