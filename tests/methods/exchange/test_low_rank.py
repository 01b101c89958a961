"""Compressed changes: how many singular values reach an energy, what the receiver has then, and what it takes."""

import numpy as np
import pytest
import torch

from fedscale_ext.methods.exchange.low_rank import WHOLE, compressed, largest_ranks, matrices, num_bytes, rank_for


def change_of(singular_values: list[float], shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    """A matrix with these singular values, in a tensor's shape."""
    rng = np.random.default_rng(seed)
    rows, columns = shape[0], int(np.prod(shape[1:]))
    u, v = (np.linalg.qr(rng.normal(size=(side, len(singular_values))))[0] for side in (rows, columns))
    return np.asarray((u * np.array(singular_values)) @ v.T).reshape(shape)


@pytest.mark.parametrize(
    ("values", "energy", "rank"),
    [
        ([3.0, 2.0, 1.0], 0.0, 1),
        ([3.0, 2.0, 1.0], 9 / 14, 1),  # reached exactly
        ([3.0, 2.0, 1.0], 0.65, 2),
        ([3.0, 2.0, 1.0], 0.93, 3),  # 13/14 = 0.9286 is less
        ([3.0, 2.0, 1.0], 1.0, 3),
        ([0.1] * 10, 1.0, 10),  # whatever the sum's rounding
        ([2.0, 0.0, 0.0], 1.0, 1),
        ([0.0, 0.0], 0.95, 0),
    ],
)
def test_the_fewest_singular_values_reach_the_energy(values: list[float], energy: float, rank: int) -> None:
    assert rank_for(torch.tensor(values, dtype=torch.float64), energy) == rank


@pytest.mark.parametrize("shape", [(12, 20), (8, 3, 3, 3)])
def test_the_receiver_has_the_best_change_of_that_rank(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    before, change = rng.normal(size=shape), change_of([4.0, 2.0, 1.0, 0.5, 0.1], shape)
    state = {"weight": torch.from_numpy(before)}
    after = {"weight": torch.from_numpy(before + change)}
    new, ranks = compressed(state, after, 0.98)  # 16 + 4 + 1 of 21.26 are 0.9878; without the 1 they are 0.941
    assert ranks.tolist() == [3] and ranks.dtype == torch.int32
    u, s, vt = np.linalg.svd(change.reshape(shape[0], -1), full_matrices=False)
    expected = before + ((u[:, :3] * s[:3]) @ vt[:3]).reshape(shape)
    np.testing.assert_allclose(new["weight"].numpy(), expected, rtol=1e-9, atol=1e-9)
    assert num_bytes(state, ranks) == 3 * (shape[0] + int(np.prod(shape[1:])) + 1) * 8 + 4


def test_vectors_numbers_and_matrices_that_factors_enlarge_are_whole() -> None:
    before = {
        "large": torch.zeros(10, 30), "small": torch.zeros(4, 4), "bias": torch.zeros(5),
        "steps": torch.tensor(3), "unchanged": torch.ones(6, 6),
    }  # fmt: skip
    full = np.random.default_rng(1).normal(size=(10, 30)).astype(np.float32)
    after = {
        "large": torch.from_numpy(full), "small": torch.eye(4), "bias": torch.arange(5.0), "steps": torch.tensor(9),
        "unchanged": torch.ones(6, 6),
    }  # fmt: skip
    assert matrices(before) == ["large", "small", "unchanged"]
    assert largest_ranks(before).tolist() == [10, 4, 6]
    new, ranks = compressed(before, after, 1.0)
    assert ranks.tolist() == [WHOLE, WHOLE, 0]
    assert all(torch.equal(new[name], after[name]) for name in after)
    sizes = {name: tensor.nbytes for name, tensor in before.items()}
    assert num_bytes(before, ranks) == sum(sizes.values()) - sizes["unchanged"] + 3 * 4


def test_a_change_that_is_not_finite_is_none() -> None:
    broken = torch.zeros(3, 3).index_fill(0, torch.tensor(1), float("nan"))
    with pytest.raises(FloatingPointError, match="not finite"):
        compressed({"weight": torch.zeros(3, 3)}, {"weight": broken}, 0.95)
