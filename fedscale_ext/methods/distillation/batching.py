"""Public samples in batches."""

import torch
from torch import Tensor


def batches(count: int, size: int, generator: torch.Generator) -> list[Tensor]:
    """Rows of each batch of an epoch; a single sample at the end joins the batch before, as BatchNorm wants two."""
    batches = list(torch.randperm(count, generator=generator).split(size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches
