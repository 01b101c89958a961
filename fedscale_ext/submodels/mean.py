"""A weighted mean of whole states, entry by entry, over the updates that cover the entry.

The server uses it where it holds states itself. A round's mean of the clients' changes is reduced where they train, by
``tasks/reduction.py``.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from fedscale_ext.core.types import Coverage, Entries, State
from fedscale_ext.submodels.extraction import grid


class CountMean:
    """Running weighted mean of updates against a reference.

    It sums in float64, in the order of :meth:`add`. It holds at most two tensors of the reference's size, whatever the
    number of updates.

    Args:
        reference: The state whose values stay where no update covers an entry.

    """

    def __init__(self, reference: State) -> None:
        self.reference = reference
        self._total = {name: torch.zeros(tensor.shape, dtype=torch.float64) for name, tensor in reference.items()}
        # one number while every update covers the whole tensor, else one weight per entry
        self._weight: dict[str, float | Tensor] = dict.fromkeys(reference, 0.0)

    def add(self, state: State, covered: Coverage | None, weight: float) -> None:
        """Add an update.

        Args:
            state: The update's tensors by name.
            covered: The entries of the reference that it covers; None: all.
            weight: Its weight, finite and not negative.

        Raises:
            ValueError: If the weight is out of range, or a tensor does not fit its covered entries.

        """
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"an update's weight must be finite and not negative, got {weight}")
        for name in self.reference:
            if covered is None:
                self._add(name, state[name], None, weight)
            elif name in covered:
                self._add(name, state[name], covered[name], weight)

    def _add(self, name: str, value: Tensor, entries: Entries, weight: float) -> None:
        total = self._total[name]
        if entries is None:
            if value.shape != total.shape:
                raise ValueError(f"{name}: update of shape {tuple(value.shape)}, reference {tuple(total.shape)}")
            total.add_(value, alpha=weight)
            self._weight[name] += float(weight)
            return
        weights = self._weight[name]
        if isinstance(weights, float):
            weights = self._weight[name] = torch.full(total.shape, weights, dtype=torch.float64)
        if isinstance(entries, Tensor):
            # where, not a product: entries that are not covered may hold any value
            total.add_(torch.where(entries, value, torch.zeros((), dtype=value.dtype)), alpha=weight)
            weights.add_(entries, alpha=weight)
            return
        index = grid(entries, total.shape)
        if value.shape != torch.broadcast_shapes(*(axis.shape for axis in index)):
            raise ValueError(f"{name}: update of shape {tuple(value.shape)} does not fit its coverage")
        total[index] += value.double() * weight
        weights[index] += weight

    def result(self) -> State:
        """Return the mean in the reference's dtypes; entries without weight keep the reference's value.

        Integer buffers (BatchNorm's num_batches_tracked) take the mean rounded to the nearest integer, so that equal
        counts stay unchanged.
        """
        mean: State = {}
        for name, tensor in self.reference.items():
            weight = self._weight[name]
            if isinstance(weight, float) and not weight > 0:
                mean[name] = tensor.clone()
                continue
            value = self._total[name] / weight
            if not (tensor.is_floating_point() or tensor.is_complex()):
                value = value.round()
            # an entry without weight keeps its exact value, which float64 might not hold
            value = value.to(tensor.dtype)
            mean[name] = value if isinstance(weight, float) else torch.where(weight > 0, value, tensor)
        return mean


def count_mean(reference: State, updates: Iterable[tuple[State, Coverage | None, float]]) -> State:
    """Return the weighted mean of updates, entry by entry, in one pass.

    With full coverage it is FedAvg (McMahan et al. 2017). With prefix coverage it is HeteroFL's aggregation (Diao et
    al. 2021).

    Args:
        reference: The state whose values stay where no update covers an entry.
        updates: Of each update its state, its coverage (None: all entries) and its weight.

    Returns:
        The mean, in the reference's dtypes.

    Raises:
        ValueError: If a weight is out of range, or a tensor does not fit its covered entries.

    """
    mean = CountMean(reference)
    for state, covered, weight in updates:
        mean.add(state, covered, weight)
    return mean.result()
