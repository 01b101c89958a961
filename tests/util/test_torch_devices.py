"""Which kernels cuDNN may look for, and that a block leaves the process as it was."""

from collections.abc import Iterator

import pytest
import torch

from fedscale_ext.util.torch_devices import without_kernel_search


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.benchmark = before


@pytest.mark.parametrize("searches", [False, True])
def test_the_search_is_off_in_the_block_alone(searches: bool) -> None:
    torch.backends.cudnn.benchmark = searches
    with without_kernel_search():
        assert not torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.benchmark == searches
    with pytest.raises(ValueError, match="a failed test"), without_kernel_search():
        raise ValueError("a failed test")
    assert torch.backends.cudnn.benchmark == searches
