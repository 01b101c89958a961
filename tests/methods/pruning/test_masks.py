"""Masks: what is pruned, and how they are packed."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.methods.pruning import masks


@given(seed=st.integers(0, 10_000), entries=st.integers(1, 60), alive=st.floats(0, 1), share=st.floats(0.01, 0.99))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_the_smallest_surviving_magnitudes_of_each_layer_go(
    seed: int, entries: int, alive: float, share: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = {name: torch.randn(entries, 3, generator=generator) for name in "ab"}
    weights["b"] *= 1000  # layers are pruned each by itself
    mask = {name: torch.rand(entries, 3, generator=generator) < alive for name in "ab"}
    before = {name: one.clone() for name, one in mask.items()}
    left = masks.pruned(mask, weights, share)
    for name in "ab":
        assert torch.equal(mask[name], before[name])
        assert not (left[name] & ~mask[name]).any()
        gone = mask[name] & ~left[name]
        assert int(gone.sum()) == int(share * int(mask[name].sum()) + 1e-9)
        if gone.any():
            assert weights[name][gone].abs().max() <= weights[name][left[name]].abs().min()


def test_of_equal_weights_the_first_go_and_shares_do_not_suffer_from_rounding() -> None:
    mask, weights = {"a": torch.ones(10, 10, dtype=torch.bool)}, {"a": torch.ones(10, 10)}
    left = masks.pruned(mask, weights, 0.29)["a"].flatten()
    assert not left[:29].any() and left[29:].all()


@given(rows=st.integers(1, 9), columns=st.integers(1, 9), seed=st.integers(0, 100))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_packing_takes_a_bit_for_an_entry_and_loses_none(rows: int, columns: int, seed: int) -> None:
    weights = {"a": torch.zeros(rows, columns), "b": torch.zeros(2, 2)}
    mask = {"a": torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) < 0.5}
    packed = masks.pack(mask)
    assert packed["a"].dtype == torch.uint8 and packed["a"].numel() == -(-rows * columns // 8)
    unpacked = masks.unpack(packed, weights)
    assert torch.equal(unpacked["a"], mask["a"]) and bool(unpacked["b"].all())  # nothing known of it: all ones
    assert masks.survivors(unpacked) == int(mask["a"].sum()) + 4
