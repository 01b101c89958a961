import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext.util.text_columns import pack_texts, unpack_texts

BYTES = torch.tensor(list("größe".encode()), dtype=torch.uint8)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_are_read_as_written(texts: list[str]) -> None:
    packed = pack_texts(texts)
    assert unpack_texts(packed["bytes"], packed["offsets"]) == texts


@pytest.mark.parametrize(
    "offsets",
    [
        torch.tensor([0, 3, 7]),  # within ö
        torch.tensor([0, 7, 2, 7]),
        torch.tensor([1, 7]),
        torch.tensor([0, 6]),
        torch.tensor([0, 8]),
        torch.tensor([], dtype=torch.int64),
        torch.tensor([0.0, 7.0]),
        torch.tensor([[0, 7]]),
    ],
    ids=range(8),
)
def test_other_arrays_are_refused(offsets: torch.Tensor) -> None:
    with pytest.raises(ValueError):
        unpack_texts(BYTES, offsets)
    with pytest.raises(ValueError):
        unpack_texts(BYTES.double(), torch.tensor([0, 7]))
