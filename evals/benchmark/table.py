"""The tables of the benchmark, made from the lines of ``runs.jsonl``.

A task has a table of accuracies and one of costs. They have the rows with a result, best first, as means over seeds.
Floors and ceilings stand below. :mod:`evals.benchmark.pages` writes them.
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from evals.benchmark.methods import row_of
from evals.benchmark.standing import OWN, Entry, ranks

_ACCURACIES = {  # heading -> (figure, digits)
    "on all %": ("on all %", 1),
    "worst tenth %": ("worst tenth %", 1),
    "at 25 %": ("own % at 25", 1),
    "at 50 %": ("own % at 50", 1),
}
_COSTS = {
    "TMACs": ("client TMACs", 2),
    "MB up": ("up MB", 1),
    "MB down": ("down MB", 1),
    "device MB": ("device MB", 2),
    "virtual h": ("virtual h", 4),
    "rounds": ("rounds", 0),
    "server TMACs": ("server TMACs", 3),
    "server s": ("server s", 1),
}


def accuracy_cells(rows: Sequence[Entry]) -> list[list[str]]:
    """Return the table of accuracies: its headings, then a row each; methods best first, then floors and ceilings."""
    of_seeds = ranks(rows)
    lines = [["method", "family", "rank", OWN, *_ACCURACIES, "rate", "seeds"]]
    for row in _methods_first(rows):
        own = mean_and_spread(row.values(OWN))
        accuracies = [_mean(row.values(figure), digits) for figure, digits in _ACCURACIES.values()]
        rank, rate = _rank(of_seeds.get(row.name)), f"{row.rate:g}"
        lines.append([row.title, row_of(row.label).family, rank, own, *accuracies, rate, str(len(row.runs))])
    return lines


def cost_cells(rows: Sequence[Entry]) -> list[list[str]]:
    """Return the table of costs: its headings, then a row each, in the order of :func:`accuracy_cells`."""
    return [["method", *_COSTS]] + [
        [row.title, *(_mean(row.values(figure), digits) for figure, digits in _COSTS.values())]
        for row in _methods_first(rows)
    ]


def short_cells(rows: Sequence[Entry]) -> list[list[str]]:
    """Return a table of few columns: its headings, then a row each, in the order of :func:`accuracy_cells`."""
    lines = [["method", "family", OWN, "worst tenth %", "MB sent"]]
    for row in _methods_first(rows):
        sent = row.values("up MB") + row.values("down MB")
        own, worst = mean_and_spread(row.values(OWN)), _mean(row.values("worst tenth %"), 1)
        lines.append([row.title, row_of(row.label).family, own, worst, _mean(sent, 1)])
    return lines


def best_of_families(rows: Sequence[Entry]) -> list[Entry]:
    """Return the best row of each family, and floors and ceilings but those of pooled samples; the best first.

    A row in which clients train more than their devices afford stands for its family only if there is no other one.
    """
    best: dict[str, Entry] = {}
    for row in sorted(rows, key=lambda entry: entry.beyond > 0):  # those of one kind stay in their order
        described = row_of(row.label)
        if not described.pooled:
            best.setdefault(row.label if described.reference else described.family, row)
    return [row for row in rows if row in best.values()]


def above_their_family(rows: Sequence[Entry]) -> str:
    """Return a sentence about rows that are above their family's in :func:`best_of_families`, "" if there are none."""
    methods = [row for row in rows if not row_of(row.label).reference]
    best = {row_of(row.label).family: row for row in best_of_families(methods)}
    above = [row for row in methods if methods.index(row) < methods.index(best[row_of(row.label).family])]
    shown = ", ".join(f"{row.title} {row.values(OWN).mean():.1f} %" for row in above)
    return shown and f"Better than their family's row, but n clients train more than they afford (n beyond): {shown}."


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
    return "–" if np.isnan(values).any() else f"{values.mean():,.{digits}f}"


def _rank(values: np.ndarray | None) -> str:
    if values is None or not len(values):
        return "–"
    if len(values) == 1:
        return f"{values[0]:.1f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.1f} ± {half:.1f}"
