"""Cost tables of spaces that do not exist."""

from collections.abc import Sequence

import numpy as np

from fedscale_ext.models.supernet.family import Tables


def table(macs: Sequence[Sequence[float]], size: Sequence[Sequence[int]] | None = None, fixed: int = 10) -> Tables:
    """Layers of operators a, b, …: their MACs, and their bytes, by default as many; ``fixed`` MACs and bytes."""
    ops = tuple(tuple("abcdefgh"[: len(row)]) for row in macs)
    shape = len(macs), max(map(len, macs))
    held, costs, sizes = np.zeros(shape, bool), np.full(shape, np.inf), np.zeros(shape, np.int64)
    for layer, row in enumerate(macs):
        held[layer, : len(row)] = True
        costs[layer, : len(row)] = row
        sizes[layer, : len(row)] = [0 if np.isinf(one) else one for one in row] if size is None else size[layer]
    return Tables(ops, held, costs, 3 * costs, sizes, sizes, float(fixed), 3.0 * fixed, fixed, fixed)
