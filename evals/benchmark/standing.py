"""How methods stand on a task: each row's jobs by seed, and its rank among the methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evals.benchmark.methods import row_of
from evals.benchmark.tasks import TASKS
from evals.paper.measurement import Measurement

OWN = "own %"
"""The figure that decides: accuracy on a client's own test samples, mean over clients."""
_SEEDS = 3


@dataclass(frozen=True)
class Entry:
    """A row of a task's table: ``runs`` are its jobs by seed, all with one learning rate.

    ``is_again``: there is a row of this label with another learning rate, whose jobs come first in runs.jsonl.
    """

    label: str
    runs: Mapping[int, Measurement]
    is_again: bool = False

    def values(self, figure: str) -> np.ndarray:
        """Return a figure of each seed, float64 [seeds]."""
        return np.array([run.figures.get(figure, np.nan) for _, run in sorted(self.runs.items())])

    @property
    def beyond(self) -> float:
        """Largest share of a seed's clients that train more than their devices afford; NaN where no device trains."""
        clients = TASKS[next(iter(self.runs.values())).data].clients
        return float(self.values("beyond capacity").max()) / clients

    @property
    def megabytes(self) -> float:
        """What all clients sent and received in a job; NaN where nobody does."""
        return float((self.values("up MB") + self.values("down MB")).mean())

    @property
    def name(self) -> str:
        """Return the label, and the learning rate where another row has the label, too."""
        return f"{self.label}, learning rate {self.rate:g}" if self.is_again else self.label

    @property
    def title(self) -> str:
        """Return the name, with a mark where clients train more than their devices afford."""
        return f"{self.name} ({100 * self.beyond:.0f} % beyond)" if self.beyond > 0 else self.name

    @property
    def rate(self) -> float:
        """Return the learning rate that was chosen."""
        return float(next(iter(self.runs.values())).keys["learning_rate"])


def entries(runs: Sequence[Measurement], task: str) -> list[Entry]:
    """Return the rows of a task that have a result, best first.

    Jobs with the same label and another learning rate are a row of their own. Those of another plan than the first of
    their label, as of an earlier version, are left out.
    """
    seeds = TASKS[task].seeds
    plans: dict[str, Any] = {}
    jobs: dict[str, dict[float, dict[int, Measurement]]] = {}  # label -> learning rate -> seed -> job
    for run in runs:
        label, plan = str(run.keys["row"]), run.keys.get("plan")
        if run.data == task and run.seed in seeds and plans.setdefault(label, plan) == plan:
            jobs.setdefault(label, {}).setdefault(float(run.keys["learning_rate"]), {})[run.seed] = run
    rows = [
        Entry(label, by_seed, is_again=number > 0)
        for label, by_rate in jobs.items()
        for number, by_seed in enumerate(by_rate.values())
    ]
    return sorted(rows, key=lambda entry: -float(entry.values(OWN).mean()))


def complete(rows: Sequence[Entry]) -> list[Entry]:
    """Return the rows that have three seeds or more, which short tables show."""
    return [row for row in rows if len(row.runs) >= _SEEDS]


def ranks(rows: Sequence[Entry], also: str = "") -> dict[str, np.ndarray]:
    """Return the rank of each method for each seed that all have, 1 the best, by its row's name.

    ``also`` is the label of a floor or a ceiling that is ranked as if it were a method.

    Ties share the mean of ranks. Rows with fewer than three seeds have no rank, unless all have fewer: the others would
    lose seeds by them.
    """
    methods = [row for row in rows if row.label == also or not row_of(row.label).reference]
    least = min(_SEEDS, max((len(row.runs) for row in methods), default=0))
    methods = [row for row in methods if len(row.runs) >= least]
    if not methods:
        return {}
    common = sorted(set.intersection(*(set(row.runs) for row in methods)))
    accuracies = np.array([[row.runs[seed].figures[OWN] for seed in common] for row in methods]).reshape(
        len(methods), -1
    )
    above = (accuracies[None] > accuracies[:, None]).sum(1) + ((accuracies[None] == accuracies[:, None]).sum(1) - 1) / 2
    return {row.name: 1 + above[number] for number, row in enumerate(methods)}
