"""Random streams keyed by what they are for, so that no draw depends on the order of other draws."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # commands that draw arrays only start without it
    import torch

Key = int | str


def _digest(*key: Key) -> bytes:
    # repr keeps 1 and "1" apart and, joined by a separator that repr escapes, ("a", "b") from ("ab",)
    return hashlib.sha256("\n".join(map(repr, key)).encode()).digest()


def stream(*key: Key) -> np.random.Generator:
    """NumPy generator of a key such as ``(seed, round, client, "batches")``; equal keys give equal draws."""
    return np.random.default_rng(np.frombuffer(_digest(*key), dtype=np.uint32))


def torch_stream(*key: Key) -> "torch.Generator":
    """CPU torch generator of a key; equal keys give equal draws on every machine with the same torch."""
    import torch

    return torch.Generator().manual_seed(int.from_bytes(_digest(*key)[:8], "little") >> 1)
