"""The tables of the benchmark, made from the lines of ``runs.jsonl``.

A task has a table of accuracies and one of costs. They have the rows with a result, best first, as means over seeds.
Floors and ceilings stand below. Another table has the tasks that can judge methods side by side.
:mod:`evals.benchmark.pages` writes them.
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from evals.benchmark.methods import row_of
from evals.benchmark.over_tasks import RowOverTasks, above_their_family
from evals.benchmark.standing import OWN, Entry, ranks
from evals.benchmark.tasks import JUDGING, TASKS

_ACCURACIES = {  # heading -> (figure, digits)
    "on all %": ("on all %", 1),
    "worst tenth %": ("worst tenth %", 1),
    "at 25 %": ("own % at 25", 1),
    "at 50 %": ("own % at 50", 1),
}
_COSTS = {  # heading -> (figure, digits, factor)
    "TMACs": ("client TMACs", 2, 1),
    "MB up": ("up MB", 1, 1),
    "MB down": ("down MB", 1, 1),
    "device MB": ("device MB", 2, 1),
    "virtual s": ("virtual h", 1, 3600),
    "rounds": ("rounds", 0, 1),
    "server TMACs": ("server TMACs", 3, 1),
    "server s": ("server s", 1, 1),
}


def accuracy_cells(rows: Sequence[Entry]) -> list[list[str]]:
    """Return the table of accuracies: its headings, then a row each; methods best first, then floors and ceilings.

    Tasks that cannot judge methods have no ranks.
    """
    return [cells if _can_judge(rows) else [*cells[:2], *cells[3:]] for cells in _ranked_cells(rows)]


def _can_judge(rows: Sequence[Entry]) -> bool:
    return all(run.data in JUDGING for row in rows for run in row.runs.values())


def _ranked_cells(rows: Sequence[Entry]) -> list[list[str]]:
    of_seeds = ranks(rows)
    lines = [["method", "family", "rank", OWN, *_ACCURACIES, "rate", "seeds"]]
    for row in _methods_first(rows):
        own = mean_and_spread(row.values(OWN))
        accuracies = [_mean(row.values(figure), digits) for figure, digits in _ACCURACIES.values()]
        rank, rate = _rank(of_seeds.get(row.name), len(of_seeds)), f"{row.rate:g}"
        lines.append([row.title, row_of(row.label).family, rank, own, *accuracies, rate, str(len(row.runs))])
    return lines


def cost_cells(rows: Sequence[Entry]) -> list[list[str]]:
    """Return the table of costs: its headings, then a row each, in the order of :func:`accuracy_cells`."""
    return [["method", *_COSTS]] + [
        [row.title, *(_mean(factor * row.values(figure), digits) for figure, digits, factor in _COSTS.values())]
        for row in _methods_first(rows)
    ]


def short_cells(rows: Sequence[RowOverTasks]) -> list[list[str]]:
    """Return the table over the judging tasks: its headings, then a row each, in the order of ``rows``."""
    of_tasks = [heading for task in JUDGING for heading in (f"{TASKS[task].short_title} %", "worst tenth %")]
    lines = [["method", "family", "rank", *of_tasks, "traffic"]]
    for row in rows:
        accuracies: list[str] = []
        for task in JUDGING:
            accuracies += _own_and_worst(row.by_task[task]) if task in row.by_task else ["–", "–"]
        lines.append([row.title, row.family, _number(row.rank, 1), *accuracies, _number(row.traffic, 2)])
    return lines


def _own_and_worst(entry: Entry) -> list[str]:
    return [mean_and_spread(entry.values(OWN)), _mean(entry.values("worst tenth %"), 1)]


def better_but_beyond(rows: Sequence[RowOverTasks]) -> str:
    """Return a sentence about the methods that :func:`best_of_families` leaves out though better, "" without any."""
    shown = ", ".join(row.title for row in above_their_family(rows))
    return (
        shown and f"Better than their family's row, but some clients train more than they afford (% beyond): {shown}."
    )


def mean_and_spread(values: np.ndarray) -> str:
    """Return the mean over seeds and their standard deviation, as in ``85.1 ± 1.2``; a single seed has no deviation."""
    spread = f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else ""
    return f"{values.mean():.1f}{spread}"


def _methods_first(rows: Sequence[Entry]) -> list[Entry]:
    return sorted(rows, key=lambda row: row_of(row.label).reference)


def markdown(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return a table's lines; the first of ``cells`` are its headings."""
    heads, *rows = cells
    return [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows)]


def _mean(values: np.ndarray, digits: int) -> str:
    return _number(float(values.mean()), digits)


def _number(value: float, digits: int) -> str:
    return "–" if np.isnan(value) else f"{value:,.{digits}f}"


def _rank(values: np.ndarray | None, last: int) -> str:
    """The mean, and its interval as far as there are ranks: from 1 to ``last``."""
    if values is None or not len(values):
        return "–"
    mean = values.mean()
    if len(values) == 1:
        return f"{mean:.1f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{mean:.1f} ({max(1, mean - half):.1f} to {min(last, mean + half):.1f})"
