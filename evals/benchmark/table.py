"""The page ``results.md`` and a picture per task, made from the lines of ``runs.jsonl``.

    python -m evals.benchmark.table

A task has a table of accuracies and one of costs. They have the rows with a result, best first, as means over seeds.
Floors and ceilings stand below.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from evals.benchmark.methods import ROWS, row_of
from evals.benchmark.picture import picture
from evals.benchmark.standing import OWN, Entry, entries, ranks
from evals.benchmark.tasks import BENCHMARK, TASKS
from evals.paper.measurement import Measurement
from evals.paper.runs import Records, replace_file

PAGE = "results.md"
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
    "server s": ("server s", 1),
}
_HEAD = """\
# Benchmark

Every method on the same clients, with the same budget of training. `python -m evals.benchmark.table` writes this page
from [runs.jsonl](runs.jsonl). [README](README.md) says what the tasks are.

- **own %**: accuracy on a client's own test samples, mean over clients; mean ± standard deviation over seeds.
- **on all %**: the same models on all clients' test samples.
- **worst tenth %**: own accuracy of the tenth of the clients that fare worst.
- **at 25 %, at 50 %**: own accuracy when a quarter and half of the budget was spent.
- **rank**: mean over the seeds that all methods have, with Student's 95 % interval. Lower is better.
- **rate**: the learning rate that was chosen of three.
- **(n beyond)**: so many of the clients train more than their devices afford.
- **TMACs, MB up, MB down**: what all clients computed, sent and received.
- **device MB**: memory of a training step of the largest model that a client has.
- **virtual h**: hours on the clients' clock.
- **server s**: the server's own work, on the machine of the run.
"""


def page(runs: Sequence[Measurement]) -> str:
    """Return the text of the page."""
    lines = _HEAD.split("\n")
    for name, task in TASKS.items():
        rows = entries(runs, name)
        if rows:
            lines += [f"## {task.title}", "", f"{len(rows)} of {len(ROWS)} rows have results so far.", ""]
            lines += [f"![Accuracy of each method on {task.title}]({name}.svg)", "", *_table(accuracy_cells(rows)), ""]
            lines += [f"What it cost on {task.title}:", "", *_table(cost_cells(rows)), ""]
    return "\n".join(lines)


def accuracy_cells(rows: Sequence[Entry]) -> list[list[str]]:
    """Return the table of accuracies: its headings, then a row each; methods best first, then floors and ceilings."""
    of_seeds = ranks(rows)
    lines = [["method", "family", "rank", OWN, *_ACCURACIES, "rate", "seeds"]]
    for row in _methods_first(rows):
        own = row.values(OWN)
        spread = f" ± {own.std(ddof=1):.1f}" if len(own) > 1 else ""
        accuracies = [_mean(row.values(figure), digits) for figure, digits in _ACCURACIES.values()]
        rank, rate = _rank(of_seeds.get(row.label)), f"{row.rate:g}"
        own_cell = f"{own.mean():.1f}{spread}"
        lines.append([_label(row), row_of(row.label).family, rank, own_cell, *accuracies, rate, str(len(row.runs))])
    return lines


def cost_cells(rows: Sequence[Entry]) -> list[list[str]]:
    """Return the table of costs: its headings, then a row each, in the order of :func:`accuracy_cells`."""
    return [["method", *_COSTS]] + [
        [_label(row), *(_mean(row.values(figure), digits) for figure, digits in _COSTS.values())]
        for row in _methods_first(rows)
    ]


def _methods_first(rows: Sequence[Entry]) -> list[Entry]:
    return sorted(rows, key=lambda row: row_of(row.label).reference)


def _table(cells: Sequence[Sequence[str]]) -> list[str]:
    heads, *rows = cells
    return [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows)]


def _label(row: Entry) -> str:
    beyond = row.values("beyond capacity").max()
    return f"{row.label} ({beyond:.0f} beyond)" if beyond > 0 else row.label


def _mean(values: np.ndarray, digits: int) -> str:
    return "–" if np.isnan(values).any() else f"{values.mean():,.{digits}f}"


def _rank(values: np.ndarray | None) -> str:
    if values is None or not len(values):
        return "–"
    if len(values) == 1:
        return f"{values[0]:.1f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.1f} ± {half:.1f}"


def write(folder: Path = BENCHMARK.folder) -> None:
    """Write the page and the pictures beside ``runs.jsonl``."""
    runs = list(Records.load(folder).runs.values())
    replace_file(folder / PAGE, page(runs))
    for task in TASKS:
        if entries(runs, task):
            replace_file(folder / f"{task}.svg", picture(runs, task) + "\n")


if __name__ == "__main__":
    write()
