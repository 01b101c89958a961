"""Updates of one model summed as they come: on the executors per unit, on the aggregator per round.

The tree of additions is fixed by the plan, not by who does it: clients in the unit's order on an
executor, units in their order on the aggregator, in float64. What travels is the weighted sum of the
clients' *changes* in the model's own dtype; rounding it loses less than the rounding of the result.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedscale_ext.privacy.clipping import clip_factor
from fedscale_ext.runtime.factored import FactoredWeights
from fedscale_ext.runtime.norms import TOO_FAR, change_norms
from fedscale_ext.runtime.resident import CohortState
from fedscale_ext.runtime.work import State

_BLOCK = 1 << 20  # entries that are converted to float64 at once
_WHOLE = 1 << 22  # entries of all clients up to which a tensor is added at once, by way of float64


class UnitSum:
    """sum of w_k (x_k - x_0) over clients of one model that started from ``start`` = x_0.

    A client with |x_k - x_0| above ``max_norm`` is left out. With ``longest``, each change is first clipped
    to this norm; ``within`` counts those that were no longer to begin with.
    """

    def __init__(self, start: State, max_norm: float | None = None, longest: float | None = None) -> None:
        self._start, self._max_norm, self._longest = start, max_norm, longest
        self._total: dict[str, Tensor] = {}
        self._states = dict.fromkeys(start, 0.0)  # weight of the clients whose state, not change, is in a total
        self.weight = 0.0
        self.within = 0

    def add(self, states: CohortState, weights: Sequence[float | None]) -> list[str | None]:
        """Add trained states [clients, *shape]; a client whose weight is None is left out.

        So is one whose state is not finite or too far from the start: the result says so, for each client.
        """
        names = list(states)
        sums = torch.stack([_checksums(states[name]) for name in names])  # [tensors, clients]
        finite = sums.isfinite().cpu()
        faults = [
            None if bool(column.all()) else f"tensor {names[int((~column).nonzero()[0])]!r} is not finite"
            for column in finite.unbind(1)
        ]
        norms = None
        if self._max_norm is not None or self._longest is not None:
            norms = change_norms(states, self._start).tolist()
        if norms is not None and self._max_norm is not None:
            near = [norm <= self._max_norm for norm in norms]
            faults = [fault or (None if ok else TOO_FAR) for fault, ok in zip(faults, near, strict=True)]
        good = [
            (place, weight)
            for place, (weight, fault) in enumerate(zip(weights, faults, strict=True))
            if weight is not None and fault is None
        ]
        self.weight += sum(weight for _, weight in good)
        if norms is not None and self._longest is not None:
            self.within += sum(norms[place] <= self._longest for place, _ in good)
            good = [(place, weight * clip_factor(norms[place], self._longest)) for place, weight in good]
        added = sum(weight for _, weight in good)
        for name, rows in states.items():
            total = self._total.get(name)
            if isinstance(rows, FactoredWeights):  # a change is small: its own dtype has room for the sum
                total = torch.zeros_like(self._start[name]) if total is None else total
                rows.add_changes(total, good)
            else:
                total = torch.zeros_like(self._start[name], dtype=torch.float64) if total is None else total.double()
                _add(total, rows, good)
                self._states[name] += added
            self._total[name] = total
        return faults

    def change(self) -> State:
        """The sum, in the dtypes of the model (whole numbers as float32), on the CPU; ends the adding."""
        change = {}
        for name, start in self._start.items():
            total = self._total.pop(name, None)  # the largest tensors live here: one at a time
            if total is None:  # no client was added
                total = torch.zeros_like(start)
            if self._states[name]:
                _add_scaled(total, start, -self._states[name])
            change[name] = total.to(_dtype(start)).cpu()
        return change


def _checksums(rows: Tensor | FactoredWeights) -> Tensor:
    """A figure for each client, float64 [clients], that is finite if all of its entries are."""
    if isinstance(rows, FactoredWeights):
        return rows.checksums()
    return rows.flatten(1).sum(1).double() if rows.dim() > 1 else rows.double()


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
