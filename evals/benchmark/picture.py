"""The benchmark's pictures: a task's rows at three shares of the budget, and all rows against a baseline."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from evals.benchmark.methods import YOUR_OWN, row_of
from evals.benchmark.over_tasks import BASELINE, RowOverTasks
from evals.benchmark.run import SHARES
from evals.benchmark.standing import OWN, entries
from evals.benchmark.tasks import JUDGING, TASKS
from evals.paper.measurement import Measurement
from fedscale_ext.report.plots.panels import GRID, INK, MODELS, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW = 0.21
"""Inches of a row."""
_COLOURS = [*MODELS, "#882255", "#6b4c1e", INK]
"""Of the ten families, and of a user's rows."""


def picture(runs: Sequence[Measurement], task: str) -> str:
    """Return the SVG of a task's rows.

    A row's large dot is its accuracy at the end, with its standard deviation over seeds; small dots are accuracies at
    a quarter and half of the budget. Floors and ceilings are grey. A row of one's own is bold.
    """
    from fedscale_ext.report.plots.figure_files import svg

    rows = entries(runs, task)[::-1]  # the best on top
    families = sorted({row_of(row.label).family for row in rows if not row_of(row.label).reference})
    colours = dict(zip(families, _COLOURS, strict=False))
    figure, axis = _figure([row.title for row in rows], [row_of(row.label).reference for row in rows])
    named = set()
    dots: list[tuple[list[float], int, str]] = []
    for height, row in enumerate(rows):
        family, own = row_of(row.label).family, row.values(OWN)
        colour = colours.get(family, MUTED)
        earlier = [float(row.values(f"own % at {100 * share:.0f}").mean()) for share in SHARES[:-1]]
        axis.plot([*earlier, own.mean()], [height] * len(SHARES), color=colour, linewidth=1, alpha=0.5, zorder=2)
        dots.append((earlier, height, colour))
        spread = own.std(ddof=1) if len(own) > 1 else None
        axis.errorbar(own.mean(), height, xerr=spread, fmt="o", color=colour, markersize=5.5, capsize=2, linewidth=1.2,
                      label=None if family in named else family, zorder=4)  # fmt: skip
        named.add(family)
    for number, size in enumerate((4, 10)):  # all rows at once: the drawing has one shape for each size
        axis.scatter([each[0][number] for each in dots], [each[1] for each in dots],
                     color=[each[2] for each in dots], s=size, zorder=3)  # fmt: skip
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        if row_of(row.label).family == YOUR_OWN:
            label.set_fontweight("bold")
    axis.set_xlabel("accuracy on clients' own samples, %: at 25, 50 and 100 % of the budget", fontsize=8, color=INK)
    axis.set_title(TASKS[task].title, fontsize=10, color=INK, pad=34)
    axis.legend(fontsize=7, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncol=6, columnspacing=1.2)
    figure.tight_layout()
    return svg(figure)


def picture_over_tasks(rows: Sequence[RowOverTasks]) -> str:
    """Return the SVG of rows against the baseline: the best on top, a dot for each task.

    A dot is the mean over seeds of the row's points above the baseline with the same seed; its bar is the standard
    deviation of these differences.
    """
    from fedscale_ext.report.plots.figure_files import svg

    shown = [row for row in rows if row.label != BASELINE and not row_of(row.label).pooled][::-1]
    figure, axis = _figure([row.title for row in shown], [row.is_reference for row in shown])
    axis.axvline(0, color=MUTED, linewidth=1, zorder=1)
    asides = np.linspace(0.12, -0.12, len(JUDGING))
    for task, colour, aside in zip(JUDGING, MODELS[: len(JUDGING)], asides, strict=True):
        has = [
            (height + aside, row) for height, row in enumerate(shown) if task in row.by_task and task in row.baseline
        ]
        points = [(height, row.above_baseline(task)) for height, row in has]
        axis.errorbar([each.mean() for _, each in points], [height for height, _ in points],
                      xerr=[each.std(ddof=1) for _, each in points], fmt="o", color=colour, markersize=4.5, capsize=2,
                      linewidth=1, label=TASKS[task].short_title, zorder=4)  # fmt: skip
    label = "points above FedAvg with the weakest device's model\n(mean and standard deviation over seeds)"
    axis.set_xlabel(label, fontsize=8, color=INK)
    axis.legend(fontsize=8, frameon=False, loc="upper left")
    figure.tight_layout()
    return svg(figure)


def _figure(titles: Sequence[str], is_reference: Sequence[bool]) -> "tuple[Figure, Axes]":
    """Return an empty figure with a line for each title, the last one on top; those of references are grey."""
    from fedscale_ext.report.plots.literal_figure import LiteralFigure

    figure = LiteralFigure(figsize=(7.2, 1.4 + _ROW * len(titles)))
    axis = figure.subplots()
    axis.set_yticks(range(len(titles)), titles, fontsize=7.5, color=INK)
    for label, grey in zip(axis.get_yticklabels(), is_reference, strict=True):
        label.set_color(MUTED if grey else INK)
    axis.set_ylim(-0.8, len(titles) - 0.2)
    axis.grid(axis="x", color=GRID, linewidth=0.8, zorder=0)
    axis.set_axisbelow(True)
    axis.tick_params(axis="both", length=0)
    axis.tick_params(axis="x", labelsize=8)
    axis.spines[["top", "right", "left"]].set_visible(False)
    return figure, axis
