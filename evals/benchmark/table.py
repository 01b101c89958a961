"""The tables of the benchmark, made from the lines of ``runs.jsonl``.

A task has a table of accuracies and one of costs. They have the rows with a result, best first, as means over seeds.
Floors and ceilings stand below. Another table has the tasks that can judge methods side by side.
:mod:`evals.benchmark.pages` writes them.
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from evals.benchmark.methods import row_of
from evals.benchmark.over_tasks import BASELINE, RowOverTasks, above_their_family
from evals.benchmark.standing import OWN, Entry, ranks
from evals.benchmark.tasks import JUDGING, TASKS

_ACCURACIES = {  # heading -> (figure, digits)
    "on all %": ("on all %", 1),
    "worst tenth %": ("worst tenth %", 1),
    "at 25 %": ("own % at 25", 1),
    "at 50 %": ("own % at 50", 1),
}
_COSTS = {  # heading -> (figure, digits, factor)
    "TMACs": ("client TMACs", 3, 1),
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
    titles = [TASKS[task].short_title for task in JUDGING]
    of_tasks = [heading for title in titles for heading in (f"{title} %", f"{title}, worst tenth %")]
    lines = [["method", "family", "rank", *of_tasks, "traffic"]]
    for row in rows:
        accuracies: list[str] = []
        for task in JUDGING:
            accuracies += _own_and_worst(row.by_task[task]) if task in row.by_task else ["–", "–"]
        rank = f"({row.rank:.1f})" if row.is_reference and row.rank > 0 else _number(row.rank, 1)
        lines.append([row.title, row.family, rank, *accuracies, _number(row.traffic, 2)])
    return lines


def difference_cells(rows: Sequence[RowOverTasks]) -> list[list[str]]:
    """Return the table of points above the baseline by task; bold where the interval does not contain zero."""
    lines = [["method", *(TASKS[task].short_title for task in JUDGING)]]
    for row in rows:
        if row.label != BASELINE:
            points = [row.above_baseline(task) if task in row.by_task else np.array([]) for task in JUDGING]
            lines.append([row.title, *map(_difference, points)])
    return lines


def _difference(points: np.ndarray) -> str:
    if len(points) < 2:
        return "–"
    text = f"{points.mean():.1f} ± {half_interval(points):.1f}"
    return f"**{text}**" if is_beyond_chance(points) else text


def chance_sentences(rows: Sequence[RowOverTasks]) -> str:
    """Return how many methods within devices' capacity are above and below the baseline beyond chance."""
    methods = [row for row in rows if not row.is_reference and row.beyond == 0]
    points = [row.above_baseline(task) for row in methods for task in row.by_task if task in row.baseline]
    beyond = [each.mean() for each in points if len(each) > 1 and is_beyond_chance(each)]
    above = sum(mean > 0 for mean in beyond)
    return (
        f"Of the {len(points)} differences of methods within devices' capacity, {above} above zero and "
        f"{len(beyond) - above} below are beyond chance. If no method differed from the baseline, about "
        f"{0.025 * len(points):.1f} of each would be beyond chance nevertheless: intervals are not corrected for their "
        "number."
    )


def half_interval(values: np.ndarray) -> float:
    """Return half of Student's 95 % interval of the mean of float64 [2 or more]."""
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def is_beyond_chance(differences: np.ndarray) -> bool:
    """Whether the 95 % interval of the mean of differences does not contain zero."""
    return bool(abs(differences.mean()) > half_interval(differences))


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
    half = half_interval(values)
    return f"{mean:.1f} ({max(1, mean - half):.1f} to {min(last, mean + half):.1f})"
