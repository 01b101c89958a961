"""Updates of one model summed as they come: on the executors per unit, on the aggregator per round.

The tree of additions is fixed by the plan, not by who does it: clients in the unit's order on an
executor, units in their order on the aggregator, in float64. What travels is the weighted sum of the
clients' *changes* in the model's own dtype; rounding it loses less than the rounding of the result.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedscale_ext.core.failures import diverged
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import Coverage, State
from fedscale_ext.privacy.mechanism import clip_factor
from fedscale_ext.submodels.extraction import grid
from fedscale_ext.training.factored import FactoredWeights
from fedscale_ext.training.label_mask import class_rows
from fedscale_ext.training.resident import CohortState
from fedscale_ext.training.update_norms import TOO_FAR, change_norms

_BLOCK = 1 << 20  # entries that are converted to float64 at once
_WHOLE = 1 << 22  # entries of all clients up to which a tensor is added at once, by way of float64

SUM = "sum"  # name of the section that holds a unit's sum of changes
CLASSES = "classes"  # ... and of the weight of those who have each class, where others do not count for its rows


class UnitSum:
    """Sum of w_k (x_k - x_0) over clients of one model that started from ``start`` = x_0.

    A client with |x_k - x_0| above ``max_norm`` is left out. With ``clip_norm``, each change is first clipped
    to this norm; ``num_unclipped`` counts those that were no longer to begin with.
    """

    def __init__(
        self, start: State, max_norm: float | None = None, clip_norm: float | None = None, spec: ModelSpec | None = None
    ) -> None:
        self._spec, self._start, self._max_norm, self._clip_norm = spec, start, max_norm, clip_norm
        self.class_weight: Tensor | None = None  # float64 [classes], where clients count for their own classes only
        self._total: dict[str, Tensor] = {}
        self._states = dict.fromkeys(start, 0.0)  # weight of the clients whose state, not change, is in a total
        self._weights: list[float] = []
        self.num_unclipped = 0

    @property
    def weight(self) -> float:
        """Return the weight of the clients that were added, rounded once: cohorts do not change it."""
        return math.fsum(self._weights)

    def add(
        self, states: CohortState, weights: Sequence[float | None], classes: Tensor | None = None
    ) -> list[str | None]:
        """Add trained states [clients, *shape]; a client whose weight is None is left out.

        A client whose state is not finite or too far from the start is left out, too. The result holds the fault of
        each client, or None. ``classes`` bool [clients, classes]: rows of other classes do not count
        (``training/label_mask.py``).
        """
        faults = faults_in_states(states)
        norms = None
        if self._max_norm is not None or self._clip_norm is not None:
            norms = change_norms(states, self._start).tolist()
        if norms is not None and self._max_norm is not None:
            near = [norm <= self._max_norm for norm in norms]
            faults = [fault or (None if ok else TOO_FAR) for fault, ok in zip(faults, near, strict=True)]
        good = [
            (index, weight)
            for index, (weight, fault) in enumerate(zip(weights, faults, strict=True))
            if weight is not None and fault is None
        ]
        self._weights += [weight for _, weight in good]
        if norms is not None and self._clip_norm is not None:
            self.num_unclipped += sum(norms[index] <= self._clip_norm for index, _ in good)
            good = [(index, weight * clip_factor(norms[index], self._clip_norm)) for index, weight in good]
        added = sum(weight for _, weight in good)
        theirs = {} if classes is None else self._count_classes(classes, good)
        for name, rows in states.items():
            total = self._total.get(name)
            if name in theirs:  # as if what does not count had not moved
                assert isinstance(rows, Tensor)
                rows = torch.where(theirs[name], rows, self._start[name])
            if isinstance(rows, FactoredWeights):  # a change is small: its own dtype has room for the sum
                total = torch.zeros_like(self._start[name]) if total is None else total
                rows.add_changes(total, good)
            else:
                total = torch.zeros_like(self._start[name], dtype=torch.float64) if total is None else total.double()
                _add(total, rows, good)
                self._states[name] += added
            self._total[name] = total
        return faults

    def _count_classes(self, classes: Tensor, good: Sequence[tuple[int, float]]) -> State:
        """Note the weight behind each class; the mask of each tensor that has an axis of classes."""
        assert self._spec is not None  # its layout tells which
        if self.class_weight is None:
            self.class_weight = torch.zeros(classes.shape[1], dtype=torch.float64)
        for index, weight in good:
            self.class_weight += weight * classes[index].cpu()
        return class_rows(self._spec, classes, lead=1)

    def change(self) -> State:
        """Return the sum on the CPU, in the dtypes of the model (whole numbers as float32). No addition may follow."""
        change = {}
        for name, start in self._start.items():
            total = self._total.pop(name, None)  # the largest tensors live here: one at a time
            if total is None:  # no client was added
                total = torch.zeros_like(start)
            if self._states[name]:
                _add_scaled(total, start, -self._states[name])
            change[name] = total.to(_dtype(start)).cpu()
        return change


def faults_in_states(states: CohortState) -> list[str | None]:
    """Return the fault of each client whose trained state [clients, *shape] is not finite, None for the others."""
    names = list(states)
    sums = torch.stack([_checksums(states[name]) for name in names])  # [tensors, clients]
    finite = sums.isfinite().cpu()
    return [
        None if bool(column.all()) else diverged(f"tensor {names[int((~column).nonzero()[0])]!r} is not finite")
        for column in finite.unbind(1)
    ]


def _checksums(rows: Tensor | FactoredWeights) -> Tensor:
    """A figure for each client, float64 [clients], that is finite if all of its entries are."""
    if isinstance(rows, FactoredWeights):
        return rows.checksums()
    return rows.flatten(1).sum(1).double() if rows.dim() > 1 else rows.double()


def _add(total: Tensor, rows: Tensor, good: Sequence[tuple[int, float]]) -> None:
    """total += sum of weight * rows[index], in float64."""
    if rows.numel() > _WHOLE or len(good) == 1:
        for index, weight in good:
            _add_scaled(total, rows[index], weight)
    elif good:
        chosen = rows if len(good) == len(rows) else rows[[index for index, _ in good]]
        scale = torch.tensor([weight for _, weight in good], dtype=torch.float64, device=rows.device)
        total.add_((chosen.double() * scale.view(-1, *[1] * total.dim())).sum(0))


def _add_scaled(total: Tensor, value: Tensor, weight: float) -> None:
    """total += weight * value, in blocks: torch converts a block of another dtype as a whole."""
    if total.numel() <= _BLOCK:
        total.add_(value, alpha=weight)
        return
    block = max(1, _BLOCK * max(1, len(total)) // max(1, total.numel())) if total.dim() else 1
    parts = zip(total.split(block), value.split(block), strict=True) if total.dim() else [(total, value)]
    for part, value_part in parts:
        part.add_(value_part, alpha=weight)


class ModelMean:
    """x_0 + (sum of the units' changes) / (sum of their weights), each entry over the units that cover it.

    Where clients train parts of one model, this is :func:`submodels.count_mean` over them: all start from x_0.
    """

    def __init__(self, start: State) -> None:
        self._start = start
        self._total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in start.items()}
        # a number as long as all entries of a tensor weigh the same, else one weight per entry
        self._weight: dict[str, float | Tensor] = dict.fromkeys(start, 0.0)

    def add(self, change: State, weight: float, covered: Coverage | None = None, rows: State | None = None) -> None:
        """Add a unit's sum of changes and the weight of its clients.

        ``covered``: the entries that the unit's model holds, by index maps; None: all. ``rows``: for tensors
        whose entries do not all weigh ``weight``, their weights, broadcastable to the change.
        """
        for name, total in self._total.items():
            if covered is not None and name not in covered:
                continue
            entry_weight = weight if rows is None or name not in rows else rows[name]
            entries = None if covered is None else covered[name]
            if entries is None:
                _add_scaled(total, change[name], 1.0)
                self._weight[name] = self._weight[name] + entry_weight
                continue
            assert isinstance(entries, tuple)  # of index maps: parts have no masks
            index = grid(entries, total.shape)
            total[index] += change[name].double()
            weights = torch.as_tensor(self._weight[name], dtype=torch.float64)
            if weights.shape != total.shape:
                weights = weights.expand(total.shape).clone()
            weights[index] += entry_weight
            self._weight[name] = weights

    @property
    def total(self) -> State:
        """Return the sum of changes, float64."""
        return self._total

    def state(self) -> State:
        """Return the weighted mean of the clients' states, in the model's dtypes; whole numbers are rounded."""
        return {name: self._mean(name, start) for name, start in self._start.items()}

    def _mean(self, name: str, start: Tensor) -> Tensor:
        total, weight = self._total[name], self._weight[name]
        if isinstance(weight, float):
            value = start.double() + total / weight if weight else start.double()
        else:
            value = start.double() + torch.where(weight > 0, total / weight, 0.0)
        return (value if start.is_floating_point() else value.round()).to(start.dtype)


def template(start: State) -> State:
    """Return the names, shapes and dtypes of a unit's sum for a model in state ``start``."""
    return {name: tensor.to(_dtype(tensor)) for name, tensor in start.items()}


def _dtype(tensor: Tensor) -> torch.dtype:
    return tensor.dtype if tensor.is_floating_point() else torch.float32
