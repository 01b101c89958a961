"""How methods stand on a task: each row's jobs by seed, and its rank among the methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evals.benchmark.methods import row_of
from evals.benchmark.tasks import TASKS
from evals.paper.measurement import Measurement

OWN = "own %"
"""The figure that decides: accuracy on a client's own test samples, mean over clients."""
_SEEDS = 3


@dataclass(frozen=True)
class Entry:
    """A row of a task's table: ``runs`` are its jobs by seed."""

    label: str
    runs: Mapping[int, Measurement]

    def values(self, figure: str) -> np.ndarray:
        """Return a figure of each seed, float64 [seeds]."""
        return np.array([run.figures.get(figure, np.nan) for _, run in sorted(self.runs.items())])

    @property
    def beyond(self) -> float:
        """Most clients of a seed that train more than their devices afford; NaN where nobody trains on devices."""
        return float(self.values("beyond capacity").max())

    @property
    def title(self) -> str:
        """Return the label, with a mark where clients train more than their devices afford."""
        return f"{self.label} ({self.beyond:.0f} beyond)" if self.beyond > 0 else self.label

    @property
    def rate(self) -> float:
        """Return the learning rate that was chosen."""
        return float(next(iter(self.runs.values())).keys["learning_rate"])


def entries(runs: Sequence[Measurement], task: str) -> list[Entry]:
    """Return the rows of a task that have a result, best first."""
    seeds = TASKS[task].seeds
    by_label: dict[str, dict[int, Measurement]] = {}
    for run in runs:
        if run.data == task and run.seed in seeds:
            by_label.setdefault(str(run.keys["row"]), {})[run.seed] = run
    rows = [Entry(label, jobs) for label, jobs in by_label.items()]
    return sorted(rows, key=lambda entry: -float(entry.values(OWN).mean()))


def complete(rows: Sequence[Entry]) -> list[Entry]:
    """Return the rows that have three seeds or more, which short tables show."""
    return [row for row in rows if len(row.runs) >= _SEEDS]


def ranks(rows: Sequence[Entry]) -> dict[str, np.ndarray]:
    """Return the rank of each method for each seed that all have, 1 the best; ties share the mean of ranks.

    Rows with fewer than three seeds have no rank, unless all have fewer: the others would lose seeds by them.
    """
    methods = [row for row in rows if not row_of(row.label).reference]
    least = min(_SEEDS, max((len(row.runs) for row in methods), default=0))
    methods = [row for row in methods if len(row.runs) >= least]
    if not methods:
        return {}
    common = sorted(set.intersection(*(set(row.runs) for row in methods)))
    accuracies = np.array([[row.runs[seed].figures[OWN] for seed in common] for row in methods]).reshape(
        len(methods), -1
    )
    above = (accuracies[None] > accuracies[:, None]).sum(1) + ((accuracies[None] == accuracies[:, None]).sum(1) - 1) / 2
    return {row.label: 1 + above[number] for number, row in enumerate(methods)}
