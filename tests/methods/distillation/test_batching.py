"""Public samples in batches."""

import pytest
import torch

from fedscale_ext.methods.distillation.batching import batches


@pytest.mark.parametrize(("count", "sizes"), [(9, [4, 5]), (10, [4, 4, 2]), (8, [4, 4]), (3, [3]), (1, [1])])
def test_a_last_sample_joins_the_batch_before(count: int, sizes: list[int]) -> None:
    drawn = batches(count, 4, torch.Generator().manual_seed(1))
    assert [len(each) for each in drawn] == sizes and sorted(torch.cat(drawn).tolist()) == list(range(count))
