import pytest
import torch

from fedscale_ext.methods.hypemefed import vectors
from fedscale_ext.methods.hypemefed.pairs import kinds, pairs
from tests.methods.hypemefed.reference import shapes, state


def test_convolutions_pair_with_the_next_blocks_same_position():
    matched, skipped = pairs(shapes(), {"conv"})
    assert [(pair.source, pair.target) for pair in matched] == [
        ("block1.conv1", "block2.conv1"),
        ("block1.conv2", "block2.conv2"),
        ("block2.conv1", "block3.conv1"),
        ("block2.conv2", "block3.conv2"),
    ]
    assert not skipped


def test_what_does_not_fit_is_skipped_with_the_reason():
    matched, skipped = pairs(
        {
            "block1.conv1.weight": (4, 3, 3, 3),
            "block1.shortcut.weight": (4, 3, 3, 3),
            "block2.conv1.weight": (8, 4, 3, 3),
            "block2.shortcut.weight": (8, 4, 1, 1),
            "block2.conv2.weight": (8, 8, 3, 3),
            "exit1.weight": (5, 4),
            "exit2.weight": (6, 8),
        },
        {"conv", "fc"},
    )
    assert [pair.target for pair in matched] == ["block2.conv1"]
    assert {each.target: each.reason for each in skipped} == {
        "block2.conv2": "block1 has no layer of its kind at its position",
        "block2.shortcut": "its kernel is 1x1, that of the block before 3x3",
        "exit2": "it has 6 classes, the exit before 5",
    }


def test_ten_blocks_are_in_the_order_of_their_numbers():
    matched, _ = pairs({f"block{block}.conv1.weight": (4, 4, 3, 3) for block in range(1, 11)}, {"conv"})
    assert [pair.block for pair in matched] == list(range(2, 11))
    assert all(pair.source == f"block{pair.block - 1}.conv1" for pair in matched)


@pytest.mark.parametrize(
    ("generate", "expected"),
    [("conv", {"conv"}), ("+bn", {"conv", "bn"}), ("+fc", {"conv", "fc"}), ("+bn+fc", {"conv", "bn", "fc"})],
)
def test_the_switch_names_kinds(generate, expected):
    assert kinds(generate) == expected


@pytest.mark.parametrize("kind", ["conv", "bn", "fc"])
def test_rows_of_a_layer_have_an_inverse(kind):
    client = state(3, 1)
    for pair in pairs(shapes(), {kind})[0]:
        tensors = {leaf: client[f"{pair.target}.{leaf}"] for leaf in pair.target_shapes}
        rows = vectors.pack(kind, tensors)
        assert rows.shape == (5 if kind == "fc" else 1, vectors.width(kind, pair.target_shapes))
        back = vectors.unpack(kind, rows, pair.target_shapes)
        assert all(torch.allclose(back[leaf], tensors[leaf]) for leaf in tensors)
