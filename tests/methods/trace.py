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
    hasher = hashlib.sha256()
    for name, value in state.items():
        hasher.update(f"{name} {value.dtype} {tuple(value.shape)}".encode() + value.contiguous().numpy().tobytes())
    return hasher.hexdigest()


def run(aggregator: Any, rounds: int) -> Trace:
    """The hooks of so many rounds as the runtime calls them; clients return made-up states."""
    trace: Trace = {
        (0, "specs"): _specs(aggregator),
        (0, "start"): _weights(aggregator),
        (0, "notices"): list(aggregator.events),
    }
    for number in range(1, rounds + 1):
        aggregator._internals = {}
        for what, value in _round(aggregator, number):
            trace[number, what] = value
    return trace


def _specs(aggregator: Any) -> list[tuple[str, Any]]:
    return [(model.key, model.spec.to_json()) for model in aggregator.pool]


def _weights(aggregator: Any) -> list[str]:
    return [digest(model.state) for model in aggregator.pool]


def _round(aggregator: Any, number: int) -> Iterator[tuple[str, Any]]:
    items = aggregator.assign(number, np.arange(1, aggregator.task.num_clients + 1))
    yield "models", [(item.client, item.model) for item in items]
    yield "parts", {m.key: {g: c.tolist() for g, c in m.part.channels.items()} for m in aggregator.pool if m.part}
    yield "objective", [dict(item.objective) | dict(item.overrides) for item in items]
    yield "compute", [(item.compute_fraction, item.forward_fraction) for item in items]
    yield "weight", [aggregator.weight(item) for item in items]
    updates = updates_for(aggregator, items, LOSSES)
    groups: dict[str, list[Any]] = {}
    for update in updates:
        model = aggregator.pool[update.item.model]
        state = trained(model.state, number, update.client, model.key)
        if aggregator.reduces:
            part = model.part.covered if model.part else None
            groups.setdefault(model.whole, []).append((state, part, aggregator.weight(update.item)))
        else:
            aggregator.collect(number, update, state)
    aggregator.aggregate(
        number, updates, {key: count_mean(aggregator.pool[key].state, group) for key, group in groups.items()}
    )
    for name in ("similarity", "activeness", "mixing", "thresholds", "invariant"):
        yield name, aggregator._internals.get(name)
    for name in ("losses", "active", "utilities"):
        yield name, repr(list(getattr(aggregator, name, [])))
    yield "weights", _weights(aggregator)
    models = len(aggregator.pool)
    aggregator.evolve(number)
    for name in ("doc", "selected_cells", "exhausted"):
        yield name, aggregator._internals.get(name)
    yield "specs", _specs(aggregator)
    for name in ("op", "cell_id", "inserted", "g", "s", "noise", "seed", "output"):
        yield name, [getattr(step, name) for step in _steps(aggregator)] if len(aggregator.pool) > models else None
    yield "lineage", [(one.birth, one.root) for one in getattr(aggregator, "lineages", [])]
    yield "children", _weights(aggregator)[models:]
    plan = aggregator.evaluation_plan()
    yield "serve", (list(plan.serve), dict(plan.named))
    aggregator.history.append(with_accuracy(number, 0.5 + 0.002 * number))
    yield "stop", aggregator.finished(number) is not None


def _steps(aggregator: Any) -> Sequence[Any]:
    return aggregator.lineages[-1].steps


def departures(plain: Trace, other: Trace) -> list[tuple[int, str]]:
    """Where two runs differ, in the order of the rounds."""
    assert plain.keys() == other.keys()
    return [at for at, value in plain.items() if other[at] != value]
