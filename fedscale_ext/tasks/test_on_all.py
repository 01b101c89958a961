"""Accuracy on everybody's test samples: the model of each client, also one that only this client has, tested on all.

Done once, for the final models (``test_on_all``): personal models take as many passes through all test samples as there
are clients. A model that several clients are served is tested once for all of them. Logits are never masked: the
samples are of all classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from fedscale_ext.core.types import Evaluation, WorkItem, is_personal, members
from fedscale_ext.tasks.answers.answer_checks import check_test_figures
from fedscale_ext.tasks.client_tensors import ClientState
from fedscale_ext.tasks.evaluation_figures import COLUMNS, figures_section, pieces, test_clients
from fedscale_ext.tasks.kind import TENSORS, Answer, Dispatcher, Kind, Worker
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import Dropped, Unit, UnitHeader

EVENT = "test_on_all"  # of a unit that does it, in addition to FedScale's events
_UNIT_SAMPLES = 32_768  # of a unit of clients' own versions, about


def plan(dispatcher: Dispatcher, round: int, serve: Sequence[str]) -> list[tuple[Unit, list[int]]]:
    """Plan units, each with the clients of its figures: one per row, or all who share the unit's one model."""
    job = dispatcher.job
    by_key: dict[str, list[int]] = {}
    for client, key in enumerate(serve, 1):
        by_key.setdefault(key, []).append(client)
    most = max(1, _UNIT_SAMPLES // max(1, int(job.task.test_sizes.sum())))
    units = []
    for key, clients in by_key.items():
        names, client_tensors = members(key), dispatcher.tensors_to_test(key)
        tested = clients if is_personal(key) else clients[:1]
        parts = [tested[start : start + most] for start in range(0, len(tested), most)]
        for part in (list(one) for whole in parts for one in dispatcher.in_messages(whole, names[0], client_tensors)):
            arguments = dispatcher.test_tensor_arguments(
                client_tensors, [WorkItem(client, names[0]) for client in part]
            )
            rate = job.learning_rate(round)
            unit = job.make_unit(EVENT, names, **arguments, learning_rate=rate, members=names, clients=part)
            units.append((unit, part if is_personal(key) else clients))
    return units


def test_on_all(dispatcher: Dispatcher, round: int, serve: Sequence[str]) -> Evaluation:
    """Test each client's model on the test samples of all clients; a client of a dropped unit is untested."""
    job = dispatcher.job
    columns, count = np.zeros((len(serve), len(COLUMNS))), np.zeros(len(serve), dtype=np.int64)
    units = plan(dispatcher, round, serve)
    for (_, clients), answer in zip(units, dispatcher.answers([unit for unit, _ in units]), strict=True):
        if isinstance(answer, Dropped):
            job.notice(f"round {round}: models of {len(clients)} clients are not tested on all: {answer.reason}")
            continue
        _, sections = answer
        rows = np.array(clients) - 1
        columns[rows] = np.stack(wire.columns(sections["figures"], COLUMNS, torch.float64), axis=1)
        count[rows] = int(job.task.test_sizes.sum())
    correct, top5, loss = columns.T
    return Evaluation(round, tuple(serve), correct, top5, loss, count, {})


class TestOnAll(Kind):
    """A test of the unit's model, or of each client's personal version, on the test samples of all clients."""

    event: ClassVar[str] = EVENT

    def run(self, worker: Worker, header: UnitHeader) -> Answer:  # noqa: D102
        with worker.watch("evaluation"):
            if ClientState.kind in header.get(TENSORS, ()):
                figures = np.stack([_sums(worker, [module]) for _, module in worker.personal_models(header)])
            else:
                figures = _sums(worker, header["members"])[None]
        return {}, {"figures": figures_section(figures)}

    def check(  # noqa: D102
        self, unit: Unit, header: Mapping[str, Any], sections: Mapping[str, wire.Section], test_sizes: np.ndarray
    ) -> None:
        check_test_figures(unit, sections, np.full(len(unit.header["clients"]), test_sizes.sum()))


def _sums(worker: Worker, models: Sequence[nn.Module | str]) -> np.ndarray:
    """float64 [3] over all test samples; models are keys of the pool, or modules."""
    data, bench = worker.data, worker.bench
    tested = np.flatnonzero(data.test_sizes > 0)
    total = np.zeros(len(COLUMNS))
    for clients in pieces(tested + 1, data.test_sizes[tested]):
        modules = (bench.module(one) if isinstance(one, str) else one for one in models)
        total += test_clients(modules, data, clients.tolist(), worker.test_batch, bench.device).figures.sum(axis=0)
    return total
