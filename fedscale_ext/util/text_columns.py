"""Many short texts as two arrays: their UTF-8 bytes one after another, and where each begins."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch


def pack_texts(texts: Sequence[str]) -> dict[str, torch.Tensor]:
    """Pack n texts into ``bytes`` uint8 [all] and ``offsets`` int64 [n + 1].

    Text i has the bytes ``offsets[i]:offsets[i + 1]``.
    """
    parts = [text.encode() for text in texts]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(list(map(len, parts)), out=offsets[1:])
    content = np.frombuffer(b"".join(parts), np.uint8).copy()
    return {"bytes": torch.from_numpy(content), "offsets": torch.from_numpy(offsets)}


def unpack_texts(content: torch.Tensor, offsets: torch.Tensor) -> list[str]:
    """Unpack the texts of :func:`pack_texts`; ValueError for arrays that it does not make."""
    if content.dtype != torch.uint8 or offsets.dtype != torch.int64 or content.dim() != 1 or offsets.dim() != 1:
        raise ValueError("texts are uint8 bytes and int64 offsets")
    ends = offsets.numpy()
    if not len(ends) or ends[0] or ends[-1] != len(content) or (np.diff(ends) < 0).any():
        raise ValueError("offsets of texts do not rise from 0 to the number of their bytes")
    whole = content.numpy().tobytes()
    return [whole[begin:end].decode() for begin, end in pairwise(ends.tolist())]
