import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.hypemefed.factorisation import (
    check_rank,
    factors,
    matrix_shape,
    product_factors,
    rank,
    to_matrix,
    to_weight,
)

SIDES = st.integers(1, 6)
SHAPES = st.one_of(
    st.tuples(SIDES, SIDES, st.integers(1, 4), st.integers(1, 4)),
    st.tuples(SIDES, SIDES, st.integers(1, 4)),
    st.tuples(SIDES, SIDES),
)


def numbers(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(SHAPES)
def test_reshape_has_an_exact_inverse(shape):
    weight = numbers(shape)
    matrix = to_matrix(weight)
    assert tuple(matrix.shape) == matrix_shape(shape)
    assert torch.equal(to_weight(matrix, shape), weight)


def test_rows_are_inputs_and_columns_outputs():
    # the public code's view without a permutation would put other taps here
    weight = numbers((5, 4, 3, 2))
    matrix = to_matrix(weight)
    for o, i, y, x in ((0, 0, 0, 0), (4, 3, 2, 1), (2, 1, 0, 1), (1, 3, 2, 0)):
        assert matrix[i * 3 + y, o * 2 + x] == weight[o, i, y, x]


@pytest.mark.parametrize("shape", [(5, 4, 3), (5, 4, 1, 3), (5, 4, 3, 1)])
def test_a_kernel_along_one_axis_has_its_taps_among_the_inputs(shape):
    weight = numbers(shape)
    matrix = to_matrix(weight)
    assert matrix_shape(shape) == (12, 5) and rank((64, 32, 1, 3), None) == 64
    assert all(matrix[i * 3 + x, o] == weight.reshape(5, 4, 3)[o, i, x] for o in (0, 4) for i in (0, 3) for x in (0, 2))


@given(st.integers(2, 12), st.integers(2, 12), st.integers(1, 14), st.integers(0, 99))
def test_components_are_the_best_approximation(rows, columns, k, seed):
    matrix = numbers((rows, columns), seed)
    p, q = factors(matrix, k)
    rank = min(k, rows, columns)
    assert p.shape == (rows, rank) and q.shape == (rank, columns)
    u, s, vt = torch.linalg.svd(matrix, full_matrices=False)
    assert torch.allclose(p @ q, (u[:, :rank] * s[:rank]) @ vt[:rank], atol=1e-6)
    assert torch.allclose(p.square().sum(0), q.square().sum(1), atol=1e-6)  # the root of S on both sides


@given(st.integers(2, 10), st.integers(2, 10), st.integers(1, 10), st.integers(0, 99))
def test_signs_are_canonical(rows, columns, k, seed):
    p, _ = factors(numbers((rows, columns), seed), k)
    largest = p.abs().argmax(0)
    assert (p[largest, torch.arange(p.shape[1])] > 0).all()


@pytest.mark.parametrize("shape", [(60, 90), (90, 60)])
def test_the_fast_way_finds_the_same_components(shape):
    # singular values far apart, so that each vector is well defined
    u, v = (torch.linalg.qr(numbers((n, 60), n))[0] for n in shape)
    matrix = (u * torch.logspace(0, -1.2, 60, dtype=torch.float64)) @ v.T
    fast, plain = factors(matrix, 20), factors(matrix, 60)
    assert torch.allclose(fast[0], plain[0][:, :20], atol=1e-9)
    assert torch.allclose(fast[1], plain[1][:20], atol=1e-9)


def test_few_large_components_fall_back_to_the_plain_way():
    left, right = numbers((40, 2), 1), numbers((2, 50), 2)
    p, q = factors((left @ right).float(), 10)
    assert torch.isfinite(p).all() and torch.isfinite(q).all()
    assert torch.allclose((p @ q).double(), left @ right, atol=1e-4)


@given(st.integers(2, 9), st.integers(2, 9), st.integers(1, 5), st.integers(1, 7), st.integers(0, 50))
def test_components_of_a_product_need_no_product(rows, columns, r, k, seed):
    p, q = numbers((rows, r), seed), numbers((r, columns), seed + 1)
    from_factors, plain = product_factors(p, q, k), factors(p @ q, k)
    assert torch.allclose(from_factors[0] @ from_factors[1], plain[0] @ plain[1], atol=1e-6)
    assert [each.shape for each in from_factors] == [each.shape for each in plain]  # as many components, of which
    assert not from_factors[0][:, r:].any() and not from_factors[1][r:].any()  # those are zero that the product has not


def test_rank_is_capped_and_checked():
    assert rank((8, 4, 3, 3), 100) == 12 and rank((8, 4, 3, 3), None) == 12 and rank((8, 4, 3, 3), 5) == 5
    shapes = [(8, 4, 3, 3), (16, 8, 3, 3)]
    check_rank(24, shapes)
    with pytest.raises(UserError, match=r"k is 25, .* has 24 singular components; give at most 24, or `all`"):
        check_rank(25, shapes)
    with pytest.raises(ValueError, match="2 to 4 dimensions"):
        to_matrix(torch.zeros(3))


@settings(max_examples=5)
@given(st.integers(0, 9))
def test_equal_weights_give_equal_bits(seed):
    weight = numbers((8, 6, 3, 3), seed).float()
    first, second = (factors(to_matrix(weight.clone()), 4) for _ in range(2))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
