"""A round's results as they come in: checked, counted once, and summed without being kept."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedscale_ext.runtime.checks import Rejected, checked_clipping, checked_figures, checked_state
from fedscale_ext.runtime.pool import ModelPool
from fedscale_ext.runtime.reduction import ModelMean, template
from fedscale_ext.runtime.wire import Section
from fedscale_ext.runtime.work import State, Task, Update, WorkItem

SUM = "sum"  # name of the section that holds a unit's sum of changes


class Collector:
    """Takes in the units' results in the units' order.

    ``weight`` gives an item's weight in its model's mean. Where ``keep`` is given, units carry each
    client's state, which is handed to it and let go; otherwise they carry one sum per unit. ``longest`` is
    the norm that clients' changes are clipped to; ``within`` counts those that were no longer.
    """

    def __init__(
        self,
        round: int,
        items: Sequence[WorkItem],
        pool: ModelPool,
        task: Task,
        weight: Callable[[WorkItem], float],
        keep: Callable[[Update, State], None] | None,
        longest: float | None = None,
    ) -> None:
        self._round, self._pool, self._task, self._weight, self._keep = round, pool, task, weight, keep
        self._longest = longest
        self._open = {item.client: item for item in items}
        self._means: dict[str, ModelMean] = {}
        self._updates: list[Update] = []
        self.within = 0
        self.failed: Counter[str] = Counter()

    def take(self, unit: Sequence[WorkItem], header: Mapping[str, Any], sections: Mapping[str, Section]) -> None:
        """Take in the result of a unit."""
        mine = {item.client for item in unit}
        good: list[Update] = []
        for place, result in enumerate(header["results"]):
            item = self._open.pop(result["client"], None) if result["client"] in mine else None
            if item is None:
                self.failed["not asked for"] += 1
                continue
            try:
                update = checked_figures(self._round, item, result, self._task)
                if self._keep is not None:
                    self._keep(update, checked_state(sections.get(str(place)), self._pool[item.model].state))
                good.append(update)
            except Rejected as reason:
                self._fail([item], str(reason))
        if self._keep is None and good:
            try:
                self._add(good, header, sections)
            except Rejected as reason:
                self._fail([update.item for update in good], str(reason))
                return
        self._updates += good

    def _add(self, good: Sequence[Update], header: Mapping[str, Any], sections: Mapping[str, Section]) -> None:
        """Add a unit's sum to its model's mean: Rejected unless it is that of the clients who count."""
        (model,) = {update.item.model for update in good}
        weight = sum(self._weight(update.item) for update in good)
        if header.get("weight") != weight:
            raise Rejected(f"its sum weighs {header.get('weight')!r}, its clients {weight:g}")
        start = self._pool[model].state
        change = checked_state(sections.get(SUM), template(start))
        if self._longest is not None:
            floating = {name: change[name] for name, tensor in start.items() if tensor.is_floating_point()}
            self.within += checked_clipping(header.get("within"), floating, len(good), self._longest)
        self._means.setdefault(model, ModelMean(start)).add(change, weight)

    def _fail(self, items: Sequence[WorkItem], reason: str) -> None:
        for item in items:
            self.failed[reason] += 1
            logging.warning(f"round {self._round}: update of client {item.client} dropped: {reason}")

    def close(self) -> tuple[list[Update], dict[str, ModelMean]]:
        """The updates, sorted by client, and the mean of each model that had one."""
        self.failed["missing from its unit"] += len(self._open)
        self.failed += Counter()  # drops the zero
        return sorted(self._updates, key=lambda update: update.client), dict(sorted(self._means.items()))
