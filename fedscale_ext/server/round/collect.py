"""A round's results as they come in: checked, counted once, and summed without being kept."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedscale_ext.core.failures import count, is_divergence
from fedscale_ext.core.types import State, Update, WorkItem
from fedscale_ext.tasks.answers.update_checks import (
    Rejected,
    checked_class_weights,
    checked_num_unclipped,
    checked_state,
    checked_sum,
    checked_update,
)
from fedscale_ext.tasks.client_tensors import ClientTensors, cache_label, section_name
from fedscale_ext.tasks.kind import SENDER, JobContext
from fedscale_ext.tasks.reduction import CLASSES, SUM, ModelMean, template
from fedscale_ext.training.label_mask import class_rows
from fedscale_ext.transport.wire import Section


class Collector:
    """Takes in the units' results in the units' order.

    The job's ``max_update_norm`` bounds the norm of a client's change: executors refuse longer ones before they add
    them up, and a sum must be one of clients within it. ``num_unclipped`` counts changes no longer than ``clip_norm``.

    Args:
        round: number of the round.
        items: what each client trains.
        job: the context of the job.
        weight: gives an item's weight in its model's mean.
        keep: takes each client's state; None unless units carry states.
        clip_norm: the norm that changes are clipped to.
        client_tensors: take the tensors that clients return in addition to states, before ``keep`` is called.
        norms: whether clients report the norm of their change.

    """

    def __init__(
        self,
        round: int,
        items: Sequence[WorkItem],
        job: JobContext,
        weight: Callable[[WorkItem], float],
        keep: Callable[[Update, State], None] | None,
        clip_norm: float | None = None,
        client_tensors: Sequence[ClientTensors] = (),
        norms: bool = False,
    ) -> None:
        self._round, self._weight, self._keep = round, weight, keep
        self._pool, self._task, self._returns = job.pool, job.task, job.returns
        self._max_norm, self._clip_norm = job.config.job.max_update_norm, clip_norm
        self._client_tensors, self._norms = client_tensors, norms
        self._open = {(item.client, item.model): item for item in items}
        self._means: dict[str, ModelMean] = {}
        self._templates: dict[str, State] = {}  # of sums, by model
        self._updates: list[Update] = []
        self.num_unclipped = 0
        self.failed: Counter[str] = Counter()
        self.diverged: set[int] = set()  # clients among those that failed

    def take(self, unit: Sequence[WorkItem], header: Mapping[str, Any], sections: Mapping[str, Section]) -> None:
        """Take in the result of a unit."""
        mine = {item.client: item.model for item in unit}
        good: list[Update] = []
        returned: list[tuple[WorkItem, list[State], int]] = []
        results = header.get("results")
        for index, result in enumerate(results if isinstance(results, list) else ()):
            client = result.get("client") if isinstance(result, dict) else None
            item = self._open.pop((client, mine[client]), None) if isinstance(client, int) and client in mine else None
            if item is None:
                count(self.failed, "not asked for")
                continue
            try:
                update = checked_update(item, result, self._task, self._norms)
                new = [
                    each.checked(item, sections.get(section_name(each.kind, index))) for each in self._client_tensors
                ]
                if self._keep is not None:
                    start = self._pool[item.model].state
                    state = checked_state(sections.get(str(index)), start, self._max_norm)
                    self._take(item, new, index, header)
                    self._keep(update, state)
                else:
                    returned.append((item, new, index))
                good.append(update)
            except Rejected as reason:
                self._fail([item], reason)
        if self._returns == "sum" and good:
            try:
                self._add(good, header, sections)
            except Rejected as reason:
                self._fail([update.item for update in good], reason)
                return
        for item, new, index in returned:
            self._take(item, new, index, header)
        self._updates += good

    def _take(self, item: WorkItem, new: Sequence[State], index: int, header: Mapping[str, Any]) -> None:
        for each, own in zip(self._client_tensors, new, strict=True):
            each.take(self._round, item, own)
            if SENDER in header:
                each.set_cached(item, (header[SENDER], cache_label(header, section_name(each.kind, index))))

    def _add(self, good: Sequence[Update], header: Mapping[str, Any], sections: Mapping[str, Section]) -> None:
        """Add a unit's sum to its model's mean: Rejected unless it is that of the clients who count."""
        (model,) = {update.item.model for update in good}
        weight = math.fsum(self._weight(update.item) for update in good)
        if header.get("weight") != weight:
            raise Rejected("its sum weighs something else than its clients", f"{weight:g}")
        trained = self._pool[model]
        start = trained.state
        bound = self._max_norm if self._clip_norm is None else self._clip_norm
        if model not in self._templates:
            self._templates[model] = template(start)
        change = checked_sum(sections.get(SUM), start, self._templates[model], weight, bound)
        if self._clip_norm is not None:
            self.num_unclipped += checked_num_unclipped(header.get("num_unclipped"), len(good))
        rows = {}
        if CLASSES in sections:
            rows = class_rows(trained.spec, checked_class_weights(sections[CLASSES], self._task.num_classes, weight))
        if trained.whole not in self._means:
            self._means[trained.whole] = ModelMean(self._pool[trained.whole].state)
        self._means[trained.whole].add(change, weight, trained.part.covered if trained.part else None, rows)

    def _fail(self, items: Sequence[WorkItem], reason: Rejected) -> None:
        for item in items:
            count(self.failed, reason.reason)
            if is_divergence(reason.reason):
                self.diverged.add(item.client)
            client = self._task.name_of(item.client)
            logging.warning(f"round {self._round}: update of client {client} dropped: {reason}")

    def close(self) -> tuple[list[Update], dict[str, ModelMean]]:
        """The updates, sorted by client, and the mean of each whole model that had one."""
        count(self.failed, "missing from its unit", len(self._open))
        self.failed += Counter()  # drops the zero
        return sorted(self._updates, key=lambda update: update.client), dict(sorted(self._means.items()))
