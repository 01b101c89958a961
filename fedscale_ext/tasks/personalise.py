"""Personalised accuracy: each client fine-tunes a copy of what it is served on its own data, and is tested on that.

Done once, for the final models (``personalise_epochs``): it costs as much as a round of all clients. A client trains
with its method's losses, the job's optimiser and the last round's learning rate, from a stream of its own, so that
neither the executors' number nor earlier evaluations play a part. Of an ensemble, each member is tuned.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedscale_ext.core.types import Evaluation, WorkItem, members
from fedscale_ext.tasks.evaluation import (
    COLUMNS,
    MASK,
    classes_present,
    client_figures,
    counted,
    outputs,
    read_figures,
)
from fedscale_ext.tasks.units import SPREAD, plan_units
from fedscale_ext.transport.unit_ledger import Dropped, Unit

if TYPE_CHECKING:
    from fedscale_ext.executor.unit_work import UnitWork
    from fedscale_ext.server.dispatcher import Workforce

EVENT = "personalise"  # of a unit that does it, beside FedScale's events; and the round in its streams' keys


def planned(workforce: "Workforce", serve: Sequence[str], epochs: int) -> list[Unit]:
    """Units of clients that are served one model, or one ensemble."""
    job = workforce.job
    tested = np.flatnonzero((job.task.test_sizes > 0) & (job.task.train_sizes > 0)) + 1
    by_key: dict[str, list[int]] = {}
    for client in tested.tolist():
        by_key.setdefault(serve[client - 1], []).append(client)
    objective = {"local_epochs": epochs}
    sizes = workforce.cohort_sizes_of([WorkItem(1, member) for key in by_key for member in members(key)])
    spread = SPREAD[workforce.device.partition(":")[0]]
    units = []
    for key, clients in by_key.items():
        names = members(key)
        size = min(sizes[name] for name in names)
        items = [WorkItem(client, names[0], objective) for client in clients]
        unit_size = job.config.job.unit_size
        own = workforce.own_of(key)
        planned_units = plan_units(items, job.pool, job.task, partial(_always, size), unit_size, spread)
        for unit in (part for whole in planned_units for part in workforce.in_messages(whole, names[0], own)):
            units.append(
                job.make_unit(
                    EVENT,
                    names,
                    **workforce.brings(own, unit),
                    members=names,
                    clients=[item.client for item in unit],
                    objective=objective,
                    learning_rate=job.learning_rate(job.round),
                    cohort=size,
                    sum=False,
                    longest=None,
                    norms=False,
                    **workforce.masks(),
                )
            )
    return units


def _always(size: int, _: str) -> int:
    return size


def personalise(workforce: "Workforce", round: int, serve: Sequence[str], epochs: int) -> Evaluation:
    """The clients' figures after ``epochs`` on the models that they are served; one that could not be tuned, or whose
    unit was dropped, counts as untested."""
    task = workforce.job.task
    columns, count = np.zeros((task.num_clients, len(COLUMNS))), np.zeros(task.num_clients, dtype=np.int64)
    unmasked = np.zeros(task.num_clients) if workforce.job.masks_tests else None
    units = planned(workforce, serve, epochs)
    for unit, result in zip(units, workforce.job.run_units(units), strict=True):
        clients = unit.header["clients"]
        if isinstance(result, Dropped):
            workforce.job.notice(f"round {round}: {len(clients)} clients are not personalised: {result.reason}")
            continue
        header, sections = result
        workforce.note_seconds(header)
        good = [place for place, client in enumerate(clients) if client not in set(header["missing"])]
        rows = np.array(clients)[good] - 1
        columns[rows], plain = counted(read_figures(unit.header, sections["figures"])[good])
        if unmasked is not None and plain is not None:
            unmasked[rows] = plain
        count[rows] = task.test_sizes[rows]
    if missing := int((count[task.test_sizes > 0] == 0).sum()):
        workforce.job.notice(f"round {round}: {missing} clients could not be personalised; the executors' log says why")
    correct, top5, loss = columns.T
    return Evaluation(round, tuple(serve), correct, top5, loss, count, {}, {}, unmasked)


def personalised_figures(work: "UnitWork", header: Mapping[str, Any], batch: int) -> tuple[dict[str, Any], np.ndarray]:
    """The executor's side: which clients could not be tuned, and figures [clients, 3 or 6] as ``test_clients`` has."""
    clients: list[int] = header["clients"]
    logits: list[Any] = [None] * len(clients)
    missing: set[int] = set()
    for number, member in enumerate(header["members"]):
        items = [{"client": client, "model": member, "objective": header["objective"]} for client in clients]
        unit = {**header, "items": items, "round": EVENT}
        confs: list[Namespace] = work.confs(unit, items)
        place = 0
        for results, states in work.trained(unit, confs):
            for row, result in enumerate(results):
                if isinstance(result, Exception):
                    missing.add(clients[place])
                else:
                    module = work.bench.resident(member)
                    module.load_state_dict({name: tensor[row] for name, tensor in states.items()})  # type: ignore[index]
                    found = outputs(module, work.data, work.data.test_rows(clients[place]), batch, work.bench.device)
                    before = logits[place]
                    logits[place] = found if before is None else before + (found - before) / (number + 1)
                place += 1
    mask = bool(header.get(MASK))
    figures = np.zeros((len(clients), len(COLUMNS) * (1 + mask)))
    for place, client in enumerate(clients):
        if client not in missing:
            labels = work.data.labels(work.data.test_rows(client))
            there = classes_present(work.data, [client]) if mask else None
            figures[place] = client_figures(logits[place], labels, there).sum(0).numpy()
    return {"missing": sorted(missing)}, figures
