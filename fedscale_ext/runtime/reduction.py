"""Updates of one model summed as they come: on the executors per unit, on the aggregator per round.

The tree of additions is fixed by the plan, not by who does it: clients in the unit's order on an
executor, units in their order on the aggregator, in float64. What travels is the weighted sum of the
clients' *changes* in the model's own dtype; rounding it loses less than the rounding of the result.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedscale_ext.privacy.clipping import change_norms, clip_factor
from fedscale_ext.runtime.work import State

_BLOCK = 1 << 20  # entries that are converted to float64 at once
_WHOLE = 1 << 22  # entries of all clients up to which a tensor is added at once, by way of float64


class UnitSum:
    """sum of w_k (x_k - x_0) over clients of one model that started from ``start`` = x_0.

    With ``longest``, each change is first clipped to this L2 norm; ``within`` counts those that were
    no longer to begin with.
    """

    def __init__(self, start: State, longest: float | None = None) -> None:
        self._start, self._longest = start, longest
        self._total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in start.items()}
        self.weight = 0.0
        self.within = 0
        self._scale = 0.0  # sum of what the states were multiplied by

    def add(self, states: State, weights: Sequence[float | None]) -> list[str | None]:
        """Add trained states [clients, *shape]; a client whose weight is None is left out.

        So is one whose state is not finite: the result names the tensor, for each client.
        """
        names = list(states)
        sums = torch.stack(
            [
                states[name].flatten(1).sum(1).double() if states[name].dim() > 1 else states[name].double()
                for name in names
            ]
        )  # [tensors, clients]
        finite = sums.isfinite().cpu()
        faults = [
            None if bool(column.all()) else f"tensor {names[int((~column).nonzero()[0])]!r} is not finite"
            for column in finite.unbind(1)
        ]
        good = [
            (place, weight)
            for place, (weight, fault) in enumerate(zip(weights, faults, strict=True))
            if weight is not None and fault is None
        ]
        for _, weight in good:
            self.weight += weight
        if self._longest is not None:
            norms = change_norms(states, self._start)
            self.within += sum(norms[place] <= self._longest for place, _ in good)
            good = [(place, weight * clip_factor(norms[place], self._longest)) for place, weight in good]
        for name, total in self._total.items():
            _add(total, states[name], good)
        for _, weight in good:
            self._scale += weight
        return faults

    def change(self) -> State:
        """The sum, in the dtypes of the model (whole numbers as float32), on the CPU; ends the adding."""
        change = {}
        for name, start in self._start.items():
            total = self._total.pop(name)  # the largest tensors live here: one at a time
            _add_scaled(total, start, -self._scale)
            change[name] = total.to(_dtype(start)).cpu()
        return change


def _add(total: Tensor, rows: Tensor, good: Sequence[tuple[int, float]]) -> None:
    """total += sum of weight * rows[place], in float64."""
    if rows.numel() > _WHOLE or len(good) == 1:
        for place, weight in good:
            _add_scaled(total, rows[place], weight)
    elif good:
        chosen = rows if len(good) == len(rows) else rows[[place for place, _ in good]]
        scale = torch.tensor([weight for _, weight in good], dtype=torch.float64, device=rows.device)
        total.add_((chosen.double() * scale.view(-1, *[1] * total.dim())).sum(0))


def _add_scaled(total: Tensor, value: Tensor, weight: float) -> None:
    """total += weight * value, in blocks: torch converts a block of another dtype as a whole."""
    block = max(1, _BLOCK * max(1, len(total)) // max(1, total.numel())) if total.dim() else 1
    parts = zip(total.split(block), value.split(block), strict=True) if total.dim() else [(total, value)]
    for part, own in parts:
        part.add_(own, alpha=weight)


class ModelMean:
    """x_0 + (sum of the units' changes) / (sum of their weights)."""

    def __init__(self, start: State) -> None:
        self._start = start
        self._total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in start.items()}
        self._weight = 0.0

    def add(self, change: State, weight: float) -> None:
        """Add a unit's sum of changes and the weight of its clients."""
        for name, total in self._total.items():
            _add_scaled(total, change[name], 1.0)
        self._weight += weight

    @property
    def total(self) -> State:
        """The sum of changes, float64."""
        return self._total

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
