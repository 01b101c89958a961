"""Accuracy on everybody's test samples: the model of each client, also one that only this client has, tested on all.

Done once, for the final models (``test_on_all``): personal models take as many passes through all test samples as there
are clients. A model that several clients are served is tested once for all of them. Logits are never masked: the
samples are of all classes.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from fedscale_ext.core.types import Evaluation, WorkItem, is_own, members
from fedscale_ext.tasks.client_tensors import OwnTensors
from fedscale_ext.tasks.evaluation import COLUMNS, pieces, test_clients
from fedscale_ext.transport import wire
from fedscale_ext.transport.unit_ledger import Dropped, Unit

if TYPE_CHECKING:
    from fedscale_ext.executor.unit_work import UnitWork
    from fedscale_ext.server.dispatcher import Workforce

EVENT = "test_on_all"  # of a unit that does it, beside FedScale's events
_UNIT_SAMPLES = 32_768  # of a unit of clients' own versions, about


def planned(workforce: "Workforce", serve: Sequence[str]) -> list[tuple[Unit, list[int]]]:
    """Units, and whose figures each gives: a client for each row, or all who are served the one model of the unit."""
    job = workforce.job
    by_key: dict[str, list[int]] = {}
    for client, key in enumerate(serve, 1):
        by_key.setdefault(key, []).append(client)
    most = max(1, _UNIT_SAMPLES // max(1, int(job.task.test_sizes.sum())))
    units = []
    for key, clients in by_key.items():
        names, own = members(key), workforce.own_of(key)
        tested = clients if is_own(key) else clients[:1]
        parts = [tested[start : start + most] for start in range(0, len(tested), most)]
        for part in (list(one) for whole in parts for one in workforce.in_messages(whole, names[0], own)):
            brought = workforce.brings_to_test(own, [WorkItem(client, names[0]) for client in part])
            rate = job.learning_rate(job.round)
            unit = job.make_unit(EVENT, names, **brought, learning_rate=rate, members=names, clients=part)
            units.append((unit, part if is_own(key) else clients))
    return units


def test_on_all(workforce: "Workforce", round: int, serve: Sequence[str]) -> Evaluation:
    """Figures of each client's model on the test samples of all clients; one whose unit was dropped is untested."""
    job = workforce.job
    columns, count = np.zeros((len(serve), len(COLUMNS))), np.zeros(len(serve), dtype=np.int64)
    units = planned(workforce, serve)
    for (_, clients), result in zip(units, job.run_units([unit for unit, _ in units]), strict=True):
        if isinstance(result, Dropped):
            job.notice(f"round {round}: models of {len(clients)} clients are not tested on all: {result.reason}")
            continue
        header, sections = result
        workforce.note_seconds(header)
        rows = np.array(clients) - 1
        columns[rows] = np.stack(wire.columns(sections["figures"], COLUMNS, torch.float64), axis=1)
        count[rows] = int(job.task.test_sizes.sum())
    correct, top5, loss = columns.T
    return Evaluation(round, tuple(serve), correct, top5, loss, count, {})


def figures_on_all(work: "UnitWork", header: Mapping[str, Any], batch: int) -> np.ndarray:
    """The executor's side: float64 [clients, 3], of the unit's model, or of each client's own version of it."""
    if OwnTensors.kind not in header.get("handed", {}):
        return _sums(work, header["members"], batch)[None]
    return np.stack([_sums(work, [module], batch) for _, module in work.own_versions(header, batch)])


def _sums(work: "UnitWork", models: Sequence[nn.Module | str], batch: int) -> np.ndarray:
    """float64 [3] over all test samples; models are keys of the pool, or at hand."""
    tested = np.flatnonzero(work.data.test_sizes > 0)
    total = np.zeros(len(COLUMNS))
    for clients in pieces(tested + 1, work.data.test_sizes[tested]):
        modules = (work.bench.module(one) if isinstance(one, str) else one for one in models)
        total += test_clients(modules, work.data, clients.tolist(), batch, work.bench.device).sum(axis=0)
    return total
