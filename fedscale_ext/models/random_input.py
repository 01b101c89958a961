"""Random samples for a look at what a network computes."""

import torch
from torch import Tensor


def random_input(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw samples of a ``shape``; not negative and below 2, so that they can stand for symbols of a text, too."""
    return 1.9 * torch.rand(*shape, dtype=dtype, generator=generator)
