"""What a method decides and computes, place by place in the order of a round: two runs can be laid side by side.

An ablation's switch is tested by the first place where its run departs from the plain one, and by all the places that
ever do: everything before the first, and everything beside the others, is bitwise the same.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from synthetic_job import with_accuracy

from fedscale_ext.core.types import State
from fedscale_ext.submodels import count_mean

from .harness import trained, updates_for

Trace = dict[tuple[int, str], Any]  # (round, place) -> what was found there, in the order of a round
LOSSES = {client: 1.0 + 0.1 * client for client in range(1, 7)}


def digest(state: State) -> str:
    """Of names, dtypes, shapes and bytes: equal for bitwise equal states alone."""
    found = hashlib.sha256()
    for name, value in state.items():
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode() + value.contiguous().numpy().tobytes())
    return found.hexdigest()


def run(made: Any, rounds: int) -> Trace:
    """The hooks of so many rounds as the runtime calls them; clients return made-up states."""
    trace: Trace = {(0, "specs"): _specs(made), (0, "start"): _weights(made), (0, "notices"): list(made.events)}
    for number in range(1, rounds + 1):
        made._internals = {}
        for place, value in _round(made, number):
            trace[number, place] = value
    return trace


def _specs(made: Any) -> list[tuple[str, Any]]:
    return [(model.key, model.spec.to_json()) for model in made.pool]


def _weights(made: Any) -> list[str]:
    return [digest(model.state) for model in made.pool]


def _round(made: Any, number: int) -> Iterator[tuple[str, Any]]:
    items = made.assign(number, np.arange(1, made.task.num_clients + 1))
    yield "models", [(item.client, item.model) for item in items]
    yield "parts", {m.key: {g: c.tolist() for g, c in m.part.channels.items()} for m in made.pool if m.part}
    yield "objective", [dict(item.objective) | dict(item.overrides) for item in items]
    yield "effort", [(item.compute_fraction, item.forward_fraction) for item in items]
    yield "weight", [made.weight(item) for item in items]
    updates = updates_for(made, number, items, LOSSES)
    groups: dict[str, list[Any]] = {}
    for update in updates:
        model = made.pool[update.item.model]
        state = trained(model.state, number, update.client, model.key)
        if made.reduces:
            part = model.part.covered if model.part else None
            groups.setdefault(model.whole, []).append((state, part, made.weight(update.item)))
        else:
            made.collect(number, update, state)
    made.aggregate(number, updates, {key: count_mean(made.pool[key].state, found) for key, found in groups.items()})
    for name in ("similarity", "activeness", "mixing", "thresholds", "invariant"):
        yield name, made._internals.get(name)
    for name in ("losses", "active", "utilities"):
        yield name, repr(list(getattr(made, name, [])))
    yield "weights", _weights(made)
    models = len(made.pool)
    made.evolve(number)
    for name in ("doc", "selected_cells", "exhausted"):
        yield name, made._internals.get(name)
    yield "specs", _specs(made)
    for name in ("op", "cell_id", "inserted", "g", "s", "noise", "seed", "output"):
        yield name, [getattr(step, name) for step in _steps(made)] if len(made.pool) > models else None
    yield "lineage", [(one.birth, one.root) for one in getattr(made, "lineages", [])]
    yield "children", _weights(made)[models:]
    plan = made.evaluation_plan()
    yield "serve", (list(plan.serve), dict(plan.named))
    made.history.append(with_accuracy(number, 0.5 + 0.002 * number))
    yield "stop", made.finished(number) is not None


def _steps(made: Any) -> Sequence[Any]:
    return made.lineages[-1].steps


def departures(plain: Trace, other: Trace) -> list[tuple[int, str]]:
    """Where two runs differ, in the order of the rounds."""
    assert plain.keys() == other.keys()
    return [at for at, value in plain.items() if other[at] != value]
