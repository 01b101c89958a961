"""Rows over all tasks that can judge methods: their accuracies on each, their mean rank, and their best by family."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from evals.benchmark.methods import row_of
from evals.benchmark.standing import OWN, Entry, complete, entries, ranks
from evals.benchmark.tasks import JUDGING
from evals.paper.measurement import Measurement

BASELINE = "FedAvg, weakest device's model"
"""The row that others are compared with: what all devices can train together without any of the methods."""


@dataclass(frozen=True)
class RowOverTasks:
    """A row on the tasks that can judge methods.

    Attributes:
        label: Its label.
        by_task: Its jobs by task, of the tasks on which it has three seeds.
        baseline: The baseline's jobs by task.
        rank: Mean of its ranks among the methods that have all tasks; NaN if it lacks one. That of a floor or a ceiling
            is the rank that it would have if it were a method.
    """

    label: str
    by_task: Mapping[str, Entry]
    baseline: Mapping[str, Entry]
    rank: float

    @property
    def family(self) -> str:
        """What makes clients' models differ."""
        return row_of(self.label).family

    @property
    def is_reference(self) -> bool:
        """Whether it is a floor or a ceiling."""
        return row_of(self.label).reference

    @property
    def beyond(self) -> float:
        """Largest share of a task's clients that train more than their devices afford; 0 where nobody does."""
        return max(float(np.nan_to_num(entry.beyond)) for entry in self.by_task.values())

    @property
    def title(self) -> str:
        """Return the label, with a mark where clients train more than their devices afford."""
        return f"{self.label} ({100 * self.beyond:.0f} % beyond)" if self.beyond > 0 else self.label

    @property
    def accuracy(self) -> float:
        """Mean over its tasks of the accuracy on clients' own samples, in %."""
        return float(np.mean([_accuracy(entry) for entry in self.by_task.values()]))

    @property
    def traffic(self) -> float:
        """What all clients send and receive, in parts of the baseline's bytes: the mean over its tasks."""
        both = [(entry, self.baseline[task]) for task, entry in self.by_task.items() if task in self.baseline]
        return float(np.mean([entry.megabytes / other.megabytes for entry, other in both])) if both else np.nan

    def is_better(self, other: "RowOverTasks") -> bool:
        """Whether it is better than another row: by rank or, if one has none, by accuracy on the tasks of both."""
        if not np.isnan(self.rank + other.rank):
            return self.rank < other.rank
        shared = [task for task in self.by_task if task in other.by_task]
        return sum(_accuracy(self.by_task[task]) - _accuracy(other.by_task[task]) for task in shared) > 0

    def above_baseline(self, task: str) -> np.ndarray:
        """Return its points above the baseline on a task, for each seed that both have, float64 [seeds]."""
        runs, others = self.by_task[task].runs, self.baseline[task].runs
        return np.array(
            [runs[seed].figures[OWN] - others[seed].figures[OWN] for seed in sorted(runs) if seed in others]
        )


def _accuracy(entry: Entry) -> float:
    return float(entry.values(OWN).mean())


def rows_over_tasks(runs: Sequence[Measurement]) -> list[RowOverTasks]:
    """Return the rows with three seeds on a judging task: methods by mean rank, then floors and ceilings by accuracy.

    Rows that lack a task have no rank. Methods without one follow those that have one.
    """
    tasks = {task: {row.label: row for row in complete(entries(runs, task)) if not row.is_again} for task in JUDGING}
    labels = {label: None for rows in tasks.values() for label in rows}
    on_all = [label for label in labels if all(label in rows for rows in tasks.values())]
    methods = [label for label in on_all if not row_of(label).reference]
    baseline = {task: rows[BASELINE] for task, rows in tasks.items() if BASELINE in rows}
    over_tasks = []
    for label in labels:
        by_task = {task: rows[label] for task, rows in tasks.items() if label in rows}
        rank = _rank_among(methods, label, list(tasks.values())) if label in on_all else np.nan
        over_tasks.append(RowOverTasks(label, by_task, baseline, rank))
    return sorted(over_tasks, key=_order)


def _rank_among(methods: Sequence[str], label: str, tasks: Sequence[Mapping[str, Entry]]) -> float:
    """Mean over tasks of the rank that a row has beside the methods, or as one of them."""
    labels = dict.fromkeys([*methods, label])
    return float(np.mean([ranks([rows[other] for other in labels], also=label)[label].mean() for rows in tasks]))


def _order(row: RowOverTasks) -> tuple[bool, float, float]:
    by_rank = not row.is_reference and not np.isnan(row.rank)
    return row.is_reference, row.rank if by_rank else np.inf, -row.accuracy


def best_of_families(rows: Sequence[RowOverTasks]) -> list[RowOverTasks]:
    """Return the best row of each family, and floors and ceilings but those of pooled samples, in their order.

    A row in which clients train more than their devices afford stands for its family only if there is no other one.
    """
    families: dict[str, list[RowOverTasks]] = {}
    for row in rows:
        if not row_of(row.label).pooled:
            families.setdefault(row.label if row.is_reference else row.family, []).append(row)
    best = [_best([row for row in known if row.beyond == 0] or known) for known in families.values()]
    return [row for row in rows if row in best]


def _best(rows: Sequence[RowOverTasks]) -> RowOverTasks:
    return reduce(lambda best, row: row if row.is_better(best) else best, rows)


def above_their_family(rows: Sequence[RowOverTasks]) -> list[RowOverTasks]:
    """Return the methods that are better than their family's row in :func:`best_of_families`."""
    methods = [row for row in rows if not row.is_reference]
    best = {row.family: row for row in best_of_families(methods)}
    return [row for row in methods if row.is_better(best[row.family])]
