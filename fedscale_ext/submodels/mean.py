"""The one weighted mean that all methods share: each entry over the updates that cover it."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from fedscale_ext.core.types import Coverage, Entries, State
from fedscale_ext.submodels.coverage import grid


class CountMean:
    """Running weighted mean of updates against a reference.

    Sums in float64, in the order of :meth:`add`; holds two tensors of the reference's size at
    most, however many updates come.
    """

    def __init__(self, reference: State) -> None:
        self.reference = reference
        self._total = {name: torch.zeros(tensor.shape, dtype=torch.float64) for name, tensor in reference.items()}
        # A scalar for as long as the whole tensor is covered by all, else one weight per entry.
        self._weight = {name: torch.zeros((), dtype=torch.float64) for name in reference}

    def add(self, state: State, covered: Coverage | None, weight: float) -> None:
        """Add an update; ``covered`` None means every entry. ValueError for a negative or non-finite
        weight and for a tensor that does not fit its covered entries."""
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
            self._weight[name] += weight
            return
        if self._weight[name].shape != total.shape:
            self._weight[name] = self._weight[name].expand(total.shape).clone()
        if isinstance(entries, Tensor):
            # where, not a product: what is not covered may hold anything
            total.add_(torch.where(entries, value, torch.zeros((), dtype=value.dtype)), alpha=weight)
            self._weight[name].add_(entries, alpha=weight)
            return
        index = grid(entries, total.shape)
        if value.shape != torch.broadcast_shapes(*(axis.shape for axis in index)):
            raise ValueError(f"{name}: update of shape {tuple(value.shape)} does not fit its coverage")
        total[index] += value.double() * weight
        self._weight[name][index] += weight

    def result(self) -> State:
        """The mean in the reference's dtypes; entries without weight keep the reference's value.

        Integer buffers (BatchNorm's num_batches_tracked) take the mean rounded to the nearest
        integer, so equal counts stay what they are.
        """
        mean: State = {}
        for name, tensor in self.reference.items():
            weight = self._weight[name]
            value = self._total[name] / weight
            if not (tensor.is_floating_point() or tensor.is_complex()):
                value = value.round()
            # The untouched value is taken over as it is: no way through float64 for it.
            mean[name] = torch.where(weight > 0, value.to(tensor.dtype), tensor)
        return mean


def count_mean(reference: State, updates: Iterable[tuple[State, Coverage | None, float]]) -> State:
    """Weighted mean of the updates (state, coverage, weight) entry by entry, in one pass.

    With full coverage it is FedAvg (McMahan et al. 2017), with prefix coverage HeteroFL's
    aggregation (Diao et al. 2021).
    """
    mean = CountMean(reference)
    for state, covered, weight in updates:
        mean.add(state, covered, weight)
    return mean.result()
