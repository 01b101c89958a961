"""Updates of one model summed as they come: on the executors per unit, on the aggregator per round.

The tree of additions is fixed by the plan, not by who does it: clients in the unit's order on an
executor, units in their order on the aggregator, in float64. What travels is the weighted sum of the
clients' *changes* in the model's own dtype; rounding it loses less than the rounding of the result.
"""

import torch
from torch import Tensor

from fedscale_ext.runtime.work import State


class NotFinite(Exception):
    """A trained state that must not be averaged."""


class UnitSum:
    """sum of w_k (x_k - x_0) over clients of one model that started from ``start`` = x_0."""

    def __init__(self, start: State) -> None:
        self._start = start
        self._total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in start.items()}
        self.weight = 0.0

    def add(self, state: State, weight: float) -> None:
        """Add a client's trained state; NotFinite leaves the sum as it was."""
        sums = torch.stack([tensor.sum().double() for tensor in state.values()])
        if not bool(sums.isfinite().all()):
            broken = next(name for name, value in zip(state, sums.tolist(), strict=True) if value - value != 0)
            raise NotFinite(f"tensor {broken!r} is not finite")
        for name, total in self._total.items():
            total.add_(state[name], alpha=weight)
        self.weight += weight

    def change(self) -> State:
        """The sum, in the dtypes of the model (whole numbers as float32), on the CPU."""
        return {
            name: (total - self.weight * self._start[name].double()).to(_dtype(self._start[name])).cpu()
            for name, total in self._total.items()
        }


class ModelMean:
    """x_0 + (sum of the units' changes) / (sum of their weights)."""

    def __init__(self, start: State) -> None:
        self._start = start
        self._total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in start.items()}
        self._weight = 0.0

    def add(self, change: State, weight: float) -> None:
        """Add a unit's sum of changes and the weight of its clients."""
        for name, total in self._total.items():
            total.add_(change[name])
        self._weight += weight

    def state(self) -> State:
        """The weighted mean of the clients' states, in the model's dtypes; whole numbers are rounded."""
        return {name: self._mean(start, self._total[name]) for name, start in self._start.items()}

    def _mean(self, start: Tensor, total: Tensor) -> Tensor:
        value = start.double() + total / self._weight if self._weight else start.double()
        return (value if start.is_floating_point() else value.round()).to(start.dtype)


def template(start: State) -> State:
    """Names, shapes and dtypes of a unit's sum for a model in state ``start``."""
    return {name: tensor.to(_dtype(tensor)) for name, tensor in start.items()}


def _dtype(tensor: Tensor) -> torch.dtype:
    return tensor.dtype if tensor.is_floating_point() else torch.float32
