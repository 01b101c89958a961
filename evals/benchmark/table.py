"""The page ``results.md`` and a picture per task, made from the lines of ``runs.jsonl``.

    python -m evals.benchmark.table

A task's table has the rows that have a result, best first, with means over seeds. Floors and ceilings stand below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from evals.benchmark.methods import ROWS, row_of
from evals.benchmark.tasks import BENCHMARK, TASKS
from evals.paper.runs import Measurement, Records, replace_file

PAGE = "results.md"
OWN = "own %"
_COLUMNS = {  # heading -> (figure, digits)
    "on all %": ("on all %", 1),
    "worst tenth %": ("worst tenth %", 1),
    "at 25 %": ("own % at 25", 1),
    "at 50 %": ("own % at 50", 1),
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
- **at 25 %, at 50 %**: own accuracy when a quarter and half of the budget was spent.
- **TMACs, MB up, MB down**: what all clients computed, sent and received.
- **device MB**: memory of a training step of the largest model that a client has.
- **virtual h**: hours on the clients' clock.
- **server s**: the server's own work, on the machine of the run.
- **rank**: mean over the seeds that all methods have, with Student's 95 % interval. Lower is better.
- **(n beyond)**: so many of the clients train more than their devices afford.
"""


@dataclass(frozen=True)
class Entry:
    """A row of a task's table: ``runs`` are its jobs by seed."""

    label: str
    runs: Mapping[int, Measurement]

    def values(self, figure: str) -> np.ndarray:
        """Return a figure of each seed, float64 [seeds]."""
        return np.array([run.figures.get(figure, np.nan) for _, run in sorted(self.runs.items())])

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
    made = [Entry(label, found) for label, found in by_label.items()]
    return sorted(made, key=lambda entry: -float(entry.values(OWN).mean()))


def ranks(rows: Sequence[Entry]) -> dict[str, np.ndarray]:
    """Return the rank of each method for each seed that all methods have, 1 the best; ties share the mean of ranks."""
    methods = [row for row in rows if not row_of(row.label).reference]
    if not methods:
        return {}
    common = sorted(set.intersection(*(set(row.runs) for row in methods)))
    found = np.array([[row.runs[seed].figures[OWN] for seed in common] for row in methods]).reshape(len(methods), -1)
    above = (found[None] > found[:, None]).sum(1) + ((found[None] == found[:, None]).sum(1) - 1) / 2
    return {row.label: 1 + above[number] for number, row in enumerate(methods)}


def page(runs: Sequence[Measurement]) -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for name, task in TASKS.items():
        rows = entries(runs, name)
        if rows:
            known = f"{len(rows)} of {len(ROWS)} rows have results so far.\n"
            drawn = f"![Accuracy and MACs]({name}.svg)\n"
            parts.append("\n".join([f"## {task.title}\n", known, drawn, *table_lines(rows), ""]))
    return "\n".join(parts)


def table_lines(rows: Sequence[Entry]) -> list[str]:
    """Return the lines of a task's table: methods, best first, then floors and ceilings."""
    heads = ["method", "family", "rank", OWN, *_COLUMNS, "rate", "seeds"]
    of_seeds = ranks(rows)
    ordered = [row for row in rows if not row_of(row.label).reference] + [
        row for row in rows if row_of(row.label).reference
    ]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for row in ordered:
        cells = [_mean(row.values(figure), digits) for figure, digits in _COLUMNS.values()]
        own = row.values(OWN)
        spread = f" ± {own.std(ddof=1):.1f}" if len(own) > 1 else ""
        lines.append(
            _line([_label(row), row_of(row.label).family, _rank(of_seeds.get(row.label)), f"{own.mean():.1f}{spread}",
                   *cells, f"{row.rate:g}", str(len(row.runs))])
        )  # fmt: skip
    return lines


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


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


def picture(runs: Sequence[Measurement], task: str) -> str:
    """Return an SVG of own accuracy at each share of the budget, a line for each method, the best twelve named."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from evals.benchmark.run import SHARES
    from fedscale_ext.report.pictures import svg

    figure, axis = pyplot.subplots(figsize=(7, 4.2))
    for number, row in enumerate(entries(runs, task)):
        points = [float(row.values(f"own % at {100 * share:.0f}").mean()) for share in SHARES]
        reference = row_of(row.label).reference
        style = {"color": "0.45", "linestyle": "--"} if reference else {"color": f"C{number % 10}"}
        axis.plot([100 * share for share in SHARES], points, marker=".", linewidth=1, label=row.label, **style)
        axis.annotate(row.label, (100, points[-1]), xytext=(4, 0), textcoords="offset points", fontsize=6, va="center")
    axis.set_xlabel("share of the budget of clients' MACs, %")
    axis.set_ylabel("accuracy on clients' own samples, %")
    axis.set_xlim(22, 132)
    axis.set_title(TASKS[task].title, fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    text = svg(figure)
    pyplot.close(figure)
    return text


def write(folder: Path = BENCHMARK.folder) -> None:
    """Write the page and the pictures beside ``runs.jsonl``."""
    runs = list(Records.load(folder).runs.values())
    replace_file(folder / PAGE, page(runs))
    for task in TASKS:
        if entries(runs, task):
            replace_file(folder / f"{task}.svg", picture(runs, task) + "\n")


if __name__ == "__main__":
    write()
