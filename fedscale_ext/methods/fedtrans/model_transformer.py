"""FedTrans's Model Transformer (Zhu et al., MLSys 2024, section 4.1): when, where and how models grow.

When: degree of convergence, Eq 1 (:func:`degree_of_convergence`). Where: layer activeness
(:func:`activeness`, :func:`select_cells`). How: widen or deepen the selected cells, preserving the
function (:func:`transform`); every step is recorded as a :class:`Transformation`, so that the
parent's later weights can be carried over to the child's shape (:func:`lift`).

The text leaves some of the following open, or contradicts itself.

Departures from the paper:

* Widening "selects columns and divides each by the times it is selected" (section 4.1). As in
  Net2Net (Chen et al. 2016), which the paper cites, the rows that produce the new channels are
  copied, and the columns that consume them are divided; only that preserves the function.
* Dividing equally leaves replicas identical for ever: the wider cell gains nothing. By default the
  columns are split by random shares that sum to one (``symmetry="random_split"``).
* The first channels keep their place (g(i) = i), the further ones are drawn at random, so that the
  leading part of the child's tensors is the parent's (what section 4.3 crops).
* An "identity tensor" behind BatchNorm is an identity in evaluation only. Inserted cells skip their
  input to their output, and zero BatchNorm scales silence their other branches.
* Blocks with a shortcut widen between their two ends (``widen="cell"``), so that what is added keeps its width; the
  text widens "the Cell". With ``widen="block"`` a ResNet's block also writes more channels, and shortcuts that would
  no longer fit become projections without BatchNorm, which begin as identities.
* Eq 1 as printed reads losses before the first round; here the window ends with the newest loss.
* A child that no device affords is made smaller by leaving out the least active cells (:func:`affordable_cells`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedscale_ext import models
from fedscale_ext.core.model_spec import Axis, Layout, ModelSpec
from fedscale_ext.core.streams import torch_stream
from fedscale_ext.core.types import Coverage, State
from fedscale_ext.models.cells import cell_family, cell_of, widened_spec, widening_group
from fedscale_ext.models.registry import parameter_names, skeleton

Operation = Literal["widen", "deepen"]
Policy = Literal["alternate", "widen_only", "deepen_only"]
Symmetry = Literal["random_split", "equal", "equal+noise"]
Widen = Literal["cell", "block"]
_NOISE = 0.05  # standard deviations; the value in ModelKeeper (Lai et al. 2023)


@dataclass(frozen=True)
class Transformation:
    """One step from parent to child; applying it again to the same weights gives the same child.

    op: "widen" or "deepen"; cell_id: the cell it was done to (or behind). Widen: ``g[i]`` is the
    old channel that new channel i copies and ``s[i]`` its share of the consumers' columns, noise the
    size of the disturbance of replicated rows in standard deviations. Deepen: ``inserted`` are the
    ids of the new cells. ``seed`` draws the noise and the new cells' weights. ``output``: what a block writes is
    widened, not its inner channels.
    """

    op: Operation
    cell_id: str
    g: tuple[int, ...] = ()
    s: tuple[float, ...] = ()
    noise: float = 0.0
    inserted: tuple[str, ...] = ()
    seed: int = 0
    output: bool = False

    @property
    def says(self) -> str:
        """Describe the step to people."""
        return f"{self.op} {self.cell_id}{' (output)' if self.output else ''}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values (floats survive JSON exactly) from which :meth:`from_json` makes an equal one."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Transformation":
        """Inverse of :meth:`to_json`."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        return cls(**values)


# --- When: section 4.1, Eq 1 -----------------------------------------------------------------------


def degree_of_convergence(losses: Sequence[float], gamma: int, delta: int) -> float | None:
    """DoC of a model (Eq 1): mean of the newest gamma slopes of its training loss, each over delta rounds.

    ``losses`` holds one loss per round in which the model was trained, oldest first. Positive while
    the loss falls. None while there are fewer than gamma + delta losses.
    """
    if len(losses) < gamma + delta:
        return None
    recent = np.asarray(losses[-(gamma + delta) :], dtype=np.float64)
    return float(np.mean((recent[:-delta] - recent[delta:]) / delta))


# --- Where: section 4.1, "layer activeness" --------------------------------------------------------


def activeness(spec: ModelSpec, before: State, after: State) -> dict[str, float]:
    """Activeness ||W_before - W_after|| / ||W_before|| (L2) of each cell over a round's aggregation.

    Over all trainable tensors of the cell (BatchNorm's scales and shifts too, its running statistics
    not). The difference stands for the paper's gradient: their ratio is the same for all cells. A
    cell without weights has activeness 0.
    """
    changes = dict.fromkeys(cell_family(spec).cell_ids(spec), 0.0)
    norms = dict(changes)
    for name in parameter_names(spec):
        cell = cell_of(name)
        if cell is not None:
            old = before[name].double()
            changes[cell] += float((old - after[name].double()).square().sum())
            norms[cell] += float(old.square().sum())
    return {cell: float(np.sqrt(changes[cell] / norms[cell])) if norms[cell] > 0 else 0.0 for cell in changes}


def mean_activeness(history: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean per cell over the newest rounds (the paper averages over T = 5)."""
    return {cell: float(np.mean([each[cell] for each in history])) for cell in history[-1]}


def select_cells(active: Mapping[str, float], alpha: float) -> list[str]:
    """Cells whose activeness is at least alpha times the largest, in the mapping's order."""
    threshold = alpha * max(active.values())
    return [cell for cell, value in active.items() if value >= threshold]


# --- How: section 4.1, "widening or deepening" -----------------------------------------------------


def operations(
    selected: Sequence[str], last_op: Mapping[str, str | None], policy: Policy = "alternate"
) -> list[tuple[str, Operation]]:
    """The operation on each selected cell: cells alternate, beginning with widening (Fig 5)."""
    if policy != "alternate":
        return [(cell, "widen" if policy == "widen_only" else "deepen") for cell in selected]
    return [(cell, "deepen" if last_op.get(cell) == "widen" else "widen") for cell in selected]


def _new_width(width: int, factor: float) -> int:
    return max(width + 1, round(factor * width))


def _new_ids(first: int, count: int) -> tuple[str, ...]:
    return tuple(f"c{number}" for number in range(first, first + count))


def _ends(widen: Widen) -> tuple[bool, ...]:
    """Whether each widening of a cell is that of its output, widening by widening."""
    return (False, True) if widen == "block" else (False,)


def _child_spec(
    spec: ModelSpec,
    steps: Sequence[tuple[str, Operation]],
    widen_factor: float,
    deepen_count: int,
    next_cell_id: int,
    widen: Widen,
) -> ModelSpec:
    """Spec of the child, without its weights: enough to compute its cost."""
    cells = cell_family(spec)
    for cell, op in steps:
        if op == "widen":
            for output in _ends(widen):
                width = _new_width(widening_group(spec, cell, output)[1], widen_factor)
                spec = widened_spec(spec, cell, width, output)
        else:
            spec = cells.deepened(spec, cell, _new_ids(next_cell_id, deepen_count))
            next_cell_id += deepen_count
    return spec


def affordable_cells(
    spec: ModelSpec,
    selected: Sequence[str],
    active: Mapping[str, float],
    last_op: Mapping[str, str | None],
    max_macs: float,
    *,
    policy: Policy = "alternate",
    widen_factor: float = 2.0,
    deepen_count: int = 1,
    widen: Widen = "cell",
    next_cell_id: int,
    macs: Callable[[ModelSpec], float] = lambda child: models.cost(child).forward_macs,
) -> list[str] | None:
    """The selected cells, less the least active ones until the child's forward MACs are at most ``max_macs``.

    None when not even the most active cell alone fits: transforming ends (section 3: "complexity reaches the maximum
    supported by any participant").
    """
    fitting = list(selected)
    while fitting:
        steps = operations(fitting, last_op, policy)
        if macs(_child_spec(spec, steps, widen_factor, deepen_count, next_cell_id, widen)) <= max_macs:
            return fitting
        fitting.remove(min(fitting, key=lambda cell: active[cell]))
    return None


def _widening(old: int, factor: float, symmetry: Symmetry, generator: np.random.Generator) -> dict[str, Any]:
    """Map g (identity on the first ``old`` channels), shares s and size of noise for a new width."""
    new = _new_width(old, factor)
    g = np.concatenate([np.arange(old), generator.integers(0, old, new - old)])
    # Shares of two replicas then lie between 1/6 and 5/6: different, and neither replica is dead. They are drawn for
    # every symmetry, so that the maps of further cells are the same under all.
    parts = generator.uniform(0.2, 1.0, new)
    if symmetry != "random_split":
        parts = np.ones(new)
    s = parts / np.bincount(g, weights=parts)[g]
    return {"g": tuple(g.tolist()), "s": tuple(s.tolist()), "noise": _NOISE if symmetry == "equal+noise" else 0.0}


def transform(
    spec: ModelSpec,
    state: State,
    selected: Sequence[str],
    last_op: Mapping[str, str | None],
    *,
    policy: Policy = "alternate",
    widen_factor: float = 2.0,
    deepen_count: int = 1,
    symmetry: Symmetry = "random_split",
    widen: Widen = "cell",
    generator: np.random.Generator,
    next_cell_id: int,
) -> tuple[ModelSpec, State, tuple[Transformation, ...]]:
    """Child of a model: the selected cells widened or deepened one after the other (section 4.1, Fig 5).

    ``last_op`` is the last operation per cell (None or missing: none yet); the caller notes the new
    ones from the records. Inserted cells are named c<next_cell_id>, c<next_cell_id + 1>, …; the
    caller sees to it that these ids are new. The child computes the parent's function, in training
    and evaluation mode (with "equal+noise" approximately).
    """
    records = []
    for cell, op in operations(selected, last_op, policy):
        for output in _ends(widen) if op == "widen" else (False,):
            record = Transformation(op, cell, seed=int(generator.integers(2**62)), output=output)
            if op == "widen":
                width = widening_group(spec, cell, output)[1]
                record = replace(record, **_widening(width, widen_factor, symmetry, generator))
            else:
                record = replace(record, inserted=_new_ids(next_cell_id, deepen_count))
                next_cell_id += deepen_count
            spec, state = apply(spec, state, record)
            records.append(record)
    return spec, {name: tensor.clone() for name, tensor in state.items()}, tuple(records)


def apply(spec: ModelSpec, state: State, step: Transformation) -> tuple[ModelSpec, State]:
    """Spec and state after one recorded step; tensors that do not change are shared with ``state``."""
    return _widen(spec, state, step) if step.op == "widen" else _deepen(spec, state, step)


def lift(spec: ModelSpec, state: State, steps: Sequence[Transformation]) -> tuple[State, Coverage]:
    """A model's current weights in the shape of its descendant (section 4.3, instead of cropping).

    ``steps`` are the transformations from this model to the descendant, generations joined. The
    coverage names the tensors that have a counterpart in the model; those of cells inserted on the
    way have none (their values here are the ones they were born with). The lifted state computes
    the model's function.
    """
    inserted = {cell for step in steps for cell in step.inserted}
    for step in steps:
        spec, state = apply(spec, state, step)
    return state, {name: None for name in state if cell_of(name) not in inserted}


def _replicate(tensor: Tensor, axes: tuple[Axis | None, ...], group: str, g: Tensor, s: Tensor) -> Tensor:
    """Copy the channels of a group along every axis that has them; consumers' entries are split by s."""
    for dim, axis in enumerate(axes):
        if axis is None or axis.group != group:
            continue
        length = tensor.shape[dim] // axis.repeat
        tensor = tensor.unflatten(dim, (length, axis.repeat)).index_select(dim, g)
        if axis.role == "in":
            tensor = tensor * s.to(tensor.dtype).view(-1, *[1] * (tensor.dim() - dim - 1))
        tensor = tensor.flatten(dim, dim + 1)
    return tensor


def _dtype(state: State) -> torch.dtype:
    return next(tensor.dtype for tensor in state.values() if tensor.is_floating_point())


@lru_cache(maxsize=256)
def _shapes(spec: ModelSpec) -> Mapping[str, torch.Size]:
    """Shape of each tensor of a spec's state, in order; soft aggregation asks for the same ones every round."""
    return {name: tensor.shape for name, tensor in skeleton(spec).state_dict().items()}


def _with_adapters(spec: ModelSpec, state: State) -> State:
    """The state with identity matrices for the adapters that the spec has and the state lacks."""
    return {
        name: state[name] if name in state else torch.eye(*shape[:2], dtype=_dtype(state)).view(shape)
        for name, shape in _shapes(spec).items()
    }


def _widen(spec: ModelSpec, state: State, step: Transformation) -> tuple[ModelSpec, State]:
    """Net2Wider: rows and BatchNorm vectors copied, columns of all consumers copied and split.

    Edges without weights that met the widened channels become 1x1 adapters first, as identities at
    the old width; replication then makes them replication or fold matrices like any other tensor.
    """
    old = max(step.g) + 1
    attached = widened_spec(spec, step.cell_id, old, step.output)
    group, _ = widening_group(attached, step.cell_id, step.output)
    layout = models.layout(attached)
    g, s = torch.tensor(step.g), torch.tensor(step.s, dtype=torch.float64)
    child = {
        name: _replicate(tensor, layout[name], group, g, s) for name, tensor in _with_adapters(attached, state).items()
    }
    if step.noise:
        rows = _rows(layout, group)
        child |= {name: _noisy(name, child[name], old * repeat, step) for name, repeat in rows.items()}
    return widened_spec(spec, step.cell_id, len(step.g), step.output), child


def _rows(layout: Layout, group: str) -> dict[str, int]:
    """Weights (not vectors) whose rows produce the group, with the number of rows of each channel."""
    first = {name: axes[0] for name, axes in layout.items() if len(axes) > 1}
    return {
        name: axis.repeat
        for name, axis in first.items()
        if axis is not None and (axis.group, axis.role) == (group, "out")
    }


def _noisy(name: str, tensor: Tensor, old: int, step: Transformation) -> Tensor:
    """Disturb replicated rows (those behind the first ``old``) by noise in units of the tensor's deviation."""
    draws = torch.randn(tensor.shape, generator=torch_stream(step.seed, name), dtype=torch.float64)
    draws[:old] = 0
    return tensor + (step.noise * tensor.double().std() * draws).to(tensor.dtype)


def _deepen(spec: ModelSpec, state: State, step: Transformation) -> tuple[ModelSpec, State]:
    """Insert cells that are exact identities; their other weights are drawn like a new model's."""
    child, born = _inserted(spec, step)
    result: State = {}
    for name in _shapes(child):
        value = born[name] if name in born else state[name]
        result[name] = value.to(_dtype(state)) if name in born and value.is_floating_point() else value
    return child, result


@lru_cache(maxsize=256)
def _inserted(spec: ModelSpec, step: Transformation) -> tuple[ModelSpec, State]:
    """The spec after a deepening, and the tensors that the parent lacks; cached, as they are the same every round."""
    cells = cell_family(spec)
    child = cells.deepened(spec, step.cell_id, step.inserted)
    zeros = {name for cell in step.inserted for name in cells.identity_zeros(child, cell)}
    fresh = models.initial_state(child, step.seed)
    born = fresh.keys() - _shapes(spec).keys()
    return child, {name: torch.zeros_like(fresh[name]) if name in zeros else fresh[name] for name in born}
