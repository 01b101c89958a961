"""Each client is tested on the model that it is served: clients are grouped by model and run in large batches."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from fedscale.cloud import commons

from fedscale_ext.core.auc import Auc, AucSums, combined, histograms_of, pooled
from fedscale_ext.core.confusion import Confusion, concatenated, gathered
from fedscale_ext.core.types import Evaluation, EvaluationPlan, Task, WorkItem, members
from fedscale_ext.tasks.answers.answer_checks import check_test_figures
from fedscale_ext.tasks.answers.auc import AUC, auc_section, read_auc
from fedscale_ext.tasks.answers.confusion import CLASSES, SECTION, confusion_section, read_confusion
from fedscale_ext.tasks.client_tensors import ClientState
from fedscale_ext.tasks.evaluation_figures import (
    COLUMNS,
    MASK,
    counted,
    figures_section,
    pieces,
    read_figures,
    test_clients,
)
from fedscale_ext.tasks.kind import TENSORS, Answer, Dispatcher, JobContext, Kind, Worker
from fedscale_ext.transport.units import Dropped, Unit, UnitHeader
from fedscale_ext.transport.wire import Section


def evaluate(dispatcher: Dispatcher, round: int, plan: EvaluationPlan, by_class: bool = False) -> Evaluation:
    """Test each client on the model that the plan serves it, and the plan's named models on all clients.

    ``by_class``: the evaluation has the confusion matrices of clients' served models, and AUC if the job has the key.
    """
    job = dispatcher.job
    serving = set(plan.serve)
    requests = [
        (key, list(part))
        for key, clients in pairs_to_test(plan, job.task)
        for part in dispatcher.in_messages(clients, members(key)[0], dispatcher.tensors_to_test(key))
    ]
    units = [
        job.make_unit(
            Evaluate.event,
            members(key),
            **dispatcher.test_tensor_arguments(
                dispatcher.tensors_to_test(key), [WorkItem(client, members(key)[0]) for client in clients]
            ),
            learning_rate=job.learning_rate(round),
            model=key,
            members=members(key),
            clients=clients,
            **job.mask_arguments,
            **(_class_figures(job, plan, key, clients) if by_class and key in serving else {}),
        )
        for key, clients in requests
    ]
    result = Gathered(plan, job.task, job.masks_tests, by_class, by_class and job.config.job.auc)
    for (key, clients), unit, answer in zip(requests, units, dispatcher.answers(units), strict=True):
        if isinstance(answer, Dropped):
            job.notice(f"round {round}: {len(clients)} clients are not tested on {key}: {answer.reason}")
            result.miss(key, clients)
            continue
        _, sections = answer
        confusion = read_confusion(unit.header, sections[SECTION]) if CLASSES in unit.header else None
        auc = read_auc(unit.header, sections[AUC]) if AUC in sections else None
        result.add(key, clients, read_figures(unit.header, sections["figures"]), confusion, auc)
    return result.evaluation(round)


class Evaluate(Kind):
    """A test of the unit's model, or of each client's personal version, on the test samples of the unit's clients."""

    event: ClassVar[str] = commons.MODEL_TEST

    def run(self, worker: Worker, header: UnitHeader) -> Answer:  # noqa: D102
        bench = worker.bench
        scored = frozenset(header.get(AUC, ()))
        how = worker.test_batch, bench.device, bool(header.get(MASK)), header.get(CLASSES), scored
        with worker.watch("evaluation"):
            if ClientState.kind in header.get(TENSORS, ()):
                results = [
                    test_clients([module], worker.data, [client], *how)
                    for client, module in worker.personal_models(header)
                ]
            else:
                results = [test_clients(map(bench.module, header["members"]), worker.data, header["clients"], *how)]
        sections = {"figures": figures_section(np.concatenate([each.figures for each in results]))}
        matrices = [each.confusion for each in results if each.confusion is not None]
        if matrices:
            sections[SECTION] = confusion_section(concatenated(matrices))
        sums = [each.auc for each in results if each.auc is not None]
        if sums:
            sections[AUC] = auc_section(combined(sums))
        return {}, sections

    def check(  # noqa: D102
        self, unit: Unit, header: Mapping[str, Any], sections: Mapping[str, Section], test_sizes: np.ndarray
    ) -> None:
        check_test_figures(unit, sections, test_sizes[np.asarray(unit.header["clients"]) - 1])


def pairs_to_test(plan: EvaluationPlan, task: Task) -> list[tuple[str, list[int]]]:
    """Return pieces (model key, clients) that cover a plan, whatever the number of executors.

    A client's samples run once per model, also where its served model is a named one too.
    """
    named = list(dict.fromkeys(plan.named.values()))
    tested = np.flatnonzero(task.test_sizes > 0)
    keys, model_indices = served(plan)
    tested_indices = model_indices[tested]
    present, first = np.unique(tested_indices, return_index=True)
    rows_by_key = [(key, tested) for key in named]
    rows_by_key += [(keys[k], tested[tested_indices == k]) for k in present[np.argsort(first)] if keys[k] not in named]
    return [(key, piece.tolist()) for key, rows in rows_by_key for piece in pieces(rows + 1, task.test_sizes[rows])]


def served(plan: EvaluationPlan) -> tuple[list[str], np.ndarray]:
    """Return the keys of the served models, and the index of each client's model among them, int64 [clients]."""
    index_of = {key: index for index, key in enumerate(dict.fromkeys(plan.serve))}
    return list(index_of), np.fromiter(map(index_of.__getitem__, plan.serve), np.int64, len(plan.serve))


def _class_figures(job: JobContext, plan: EvaluationPlan, key: str, clients: Sequence[int]) -> dict[str, Any]:
    """Request confusion matrices; if the job has AUC, that of the clients that are served the model of the key."""
    served = [client for client in clients if plan.serve[client - 1] == key]
    return {CLASSES: job.task.num_classes, **({AUC: served} if job.config.job.auc and served else {})}


class Gathered:
    """Reduces the units' figures to those of each client's served model and of the named models.

    ``mask``: figures have masked columns, too. ``by_class``: confusion matrices come with them, ``auc``: and
    sums of AUC.
    """

    def __init__(
        self, plan: EvaluationPlan, task: Task, mask: bool = False, by_class: bool = False, auc: bool = False
    ) -> None:
        self._plan, self._task, self._by_class, self._auc = plan, task, by_class, auc
        self._areas: dict[int, np.ndarray] = {}  # by client's index
        self._scores: list[AucSums] = []
        self._cells: list[np.ndarray] = [np.zeros((3, 0), dtype=np.int64)]  # [owner, cell, count] of served models
        self._unmasked = np.zeros(task.num_clients) if mask else None
        keys, self._served = served(plan)
        self._index = {key: index for index, key in enumerate(keys)}
        self._columns = np.zeros((task.num_clients, len(COLUMNS)))
        self._named = {key: np.zeros(len(COLUMNS)) for key in plan.named.values()}
        self._named_correct = {key: np.zeros(task.num_clients) for key in plan.named.values()}
        self._count = task.test_sizes.copy()
        self._named_count = dict.fromkeys(self._named, int(task.test_sizes.sum()))

    def add(
        self, key: str, clients: Sequence[int], figures: np.ndarray,
        confusion: Confusion | None = None, auc: AucSums | None = None,
    ) -> None:  # fmt: skip
        """Take in the figures [clients, 3 or 6] of a model on the test samples of these clients."""
        rows = np.asarray(clients) - 1
        mine = self._served[rows] == self._index.get(key, -1)
        if confusion is not None:
            part = confusion.of(np.flatnonzero(mine))
            self._cells.append(np.stack([rows[mine][part.owner], part.cells, part.counts]))
            if auc is not None:
                self._add_auc(rows[mine], part, auc)
        self._columns[rows[mine]], unmasked = counted(figures[mine])
        if self._unmasked is not None and unmasked is not None:
            self._unmasked[rows[mine]] = unmasked
        if key in self._named:
            self._named[key] += figures[:, : len(COLUMNS)].sum(axis=0)
            self._named_correct[key][rows] = figures[:, 0]

    def _add_auc(self, rows: np.ndarray, confusion: Confusion, auc: AucSums) -> None:
        """Take in the sums of the clients of these indices, whose matrices ``confusion`` has."""
        client, _ = confusion.tested_classes
        ends = np.cumsum(np.bincount(client, minlength=len(rows)))
        self._areas.update(zip(rows.tolist(), np.split(auc.areas, ends[:-1]), strict=True))
        self._scores.append(auc)

    def miss(self, key: str, clients: Sequence[int]) -> None:
        """Count clients as clients without test samples: they could not be tested on a model."""
        rows = np.asarray(clients) - 1
        if key in self._named:
            self._named_count[key] -= int(self._task.test_sizes[rows].sum())
            self._named_correct[key][rows] = np.nan
        self._count[rows[self._served[rows] == self._index.get(key, -1)]] = 0

    def evaluation(self, round: int) -> Evaluation:
        """Return the evaluation of ``round``, once all pieces of :func:`pairs_to_test` were added."""
        named = {}
        for title, key in self._plan.named.items():
            correct, _, loss = self._named[key] / max(1, self._named_count[key])
            named[title] = float(correct), float(loss)
        correct, top5, loss = self._columns.T
        by_client = {title: self._named_correct[key] for title, key in self._plan.named.items()}
        serve = tuple(self._plan.serve)
        confusion = None
        if self._by_class:
            owner, cells, counts = np.concatenate(self._cells, axis=1)
            confusion = gathered(owner, cells, counts, len(serve), self._task.num_classes)
        auc = None
        if self._auc:
            areas = np.concatenate([np.zeros(0), *(self._areas[row] for row in sorted(self._areas))])
            auc = Auc(areas, *pooled(histograms_of(self._scores, self._task.num_classes)))
        return Evaluation(
            round, serve, correct, top5, loss, self._count, named, by_client, self._unmasked, confusion, auc
        )
