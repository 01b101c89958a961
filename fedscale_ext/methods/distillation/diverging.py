"""Training on the server that diverges: a model with numbers that are not finite is never taken on.

As a client's does (``training/local_training.py``), such training raises FloatingPointError; the server goes on with
what it had, and says so.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


def check_finite(tensors: Iterable[Tensor], what: str) -> None:
    """FloatingPointError, which says ``what`` has diverged, unless every number is finite."""
    if not all(bool(torch.isfinite(each).all()) for each in tensors):
        raise FloatingPointError(f"{what} has diverged: not all of its numbers are finite")
