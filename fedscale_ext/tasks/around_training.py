"""Accuracy of each client's model before and after its local training, measured alike for every method.

Methods test clients at different points of a round: Moss serves what its server's step made, and clients of FedMD keep
what they trained. At the end of a job with ``test_around_training``, each client does one more round as far as its
local training, which nobody collects. It is tested twice:

* before: on the model that its local training begins with. The server's step is behind it, and what a client learns
  from the server's message (the digest of FedMD);
* after: on the model that its local training ends with, before the server's next step (Moss's M_j^i).

Where a method tests with BatchNorm statistics that are estimated anew, those of a model that only this client has are
of its own training samples. The streams' keys hold the event's name instead of a round, so that neither the number of
executors nor earlier evaluations play a part.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from fedscale_ext.core.types import Evaluation, WorkItem
from fedscale_ext.tasks import bn_statistics as static_statistics
from fedscale_ext.tasks.evaluation import COLUMNS, test_clients
from fedscale_ext.tasks.units import SPREAD, plan_units
from fedscale_ext.training.local_training import seed_layers
from fedscale_ext.transport import wire
from fedscale_ext.transport.unit_ledger import Dropped, Unit

if TYPE_CHECKING:
    from fedscale_ext.executor.unit_work import UnitWork
    from fedscale_ext.server.dispatcher import Workforce

EVENT = "around_training"  # of a unit that does it, beside FedScale's events; and the round in its streams' keys
SECTIONS = ("before", "after")  # of its answer


def planned(workforce: "Workforce", items: Sequence[WorkItem]) -> list[Unit]:
    """Units of the items' clients that have training and test samples."""
    job = workforce.job
    able = (job.task.test_sizes > 0) & (job.task.train_sizes > 0)
    tested = [item for item in items if able[item.client - 1]]
    sizes = workforce.cohort_sizes_of(tested)
    handed = workforce.handed_with(tested)
    unit_size, spread = job.config.job.unit_size, SPREAD[workforce.device.partition(":")[0]]
    units = plan_units(tested, job.pool, job.task, sizes.__getitem__, unit_size, spread)
    return [
        job.make_unit(
            EVENT,
            [part[0].model],
            **workforce.brings(handed, part),
            items=[{"client": one.client, "model": one.model, "objective": dict(one.objective)} for one in part],
            clients=[one.client for one in part],
            learning_rate=job.learning_rate(job.round),
            cohort=sizes[part[0].model],
            statistics=job.static_statistics,
            sum=False,
            longest=None,
            norms=False,
        )
        for unit in units
        for part in workforce.in_messages(unit, unit[0].model, handed)
    ]


def around_training(
    workforce: "Workforce", round: int, serve: Sequence[str], items: Sequence[WorkItem]
) -> tuple[Evaluation, Evaluation]:
    """The clients' figures before and after they train ``items``, one of each client. A client whose training failed,
    or whose unit was dropped, counts as untested in both."""
    task = workforce.job.task
    columns = np.zeros((len(SECTIONS), task.num_clients, len(COLUMNS)))
    count = np.zeros(task.num_clients, dtype=np.int64)
    units = planned(workforce, items)
    for unit, result in zip(units, workforce.job.run_units(units), strict=True):
        clients = unit.header["clients"]
        if isinstance(result, Dropped):
            workforce.job.notice(
                f"round {round}: {len(clients)} clients are not tested around training: {result.reason}"
            )
            continue
        header, sections = result
        workforce.note_seconds(header)
        good = [place for place, client in enumerate(clients) if client not in set(header["missing"])]
        rows = np.array(clients)[good] - 1
        for figures, name in zip(columns, SECTIONS, strict=True):
            figures[rows] = np.stack(wire.columns(sections[name], COLUMNS, torch.float64), axis=1)[good]
        count[rows] = task.test_sizes[rows]
    if missing := int((count[task.test_sizes > 0] == 0).sum()):
        workforce.job.notice(
            f"round {round}: {missing} clients could not be tested around training; the executors' log says why"
        )

    def evaluation(figures: np.ndarray) -> Evaluation:
        correct, top5, loss = figures.T
        return Evaluation(round, tuple(serve), correct, top5, loss, count, {})

    return evaluation(columns[0]), evaluation(columns[1])


def figures_around_training(
    work: "UnitWork", header: Mapping[str, Any], batch: int
) -> tuple[dict[str, Any], np.ndarray]:
    """The executor's side: which clients failed, and float64 [before and after, clients, 3] as ``test_clients`` gives
    it."""
    clients, items = header["clients"], header["items"]
    unit = {**header, "round": EVENT}
    figures = np.zeros((len(SECTIONS), len(clients), len(COLUMNS)))
    missing: set[int] = set()

    def test(module: nn.Module, client: int, measured: bool) -> np.ndarray:
        if measured:
            seen = work.seen(module, [client], batch)
            module.load_state_dict(static_statistics.with_statistics(module.state_dict(), seen))
        tested: np.ndarray = test_clients([module], work.data, [client], batch, work.bench.device)[0]
        return tested

    for row, conf in enumerate(work.confs(unit, items)):
        try:
            module = begun(work, conf)
        except FloatingPointError:
            missing.add(clients[row])
            continue
        figures[0, row] = test(module, clients[row], header["statistics"] and conf.own is not None)
    confs = work.confs(unit, items)
    row = 0
    for results, states in work.trained(unit, confs):
        for place, result in enumerate(results):
            conf = confs[row]
            if isinstance(result, Exception):
                missing.add(clients[row])
            else:
                module = work.bench.resident(conf.model_key)
                module.load_state_dict({name: tensor[place] for name, tensor in states.items()})  # type: ignore[index]
                if conf.own is not None:
                    conf.own = result["own"]
                    work.client_of(conf).own_model(module, conf)
                figures[1, row] = test(module, clients[row], header["statistics"])
            row += 1
    return {"missing": sorted(missing)}, figures


def begun(work: "UnitWork", conf: Namespace) -> nn.Module:
    """The resident module as the model that a client's local training begins with. FloatingPointError where what it
    learns from the server's message diverges."""
    module = work.bench.module(conf.model_key)
    seed_layers(conf)
    work.client_of(conf).begin(module, conf)
    return module
