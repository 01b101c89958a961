"""Panels of the evaluations' pictures: their grid, axes and legend."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

if TYPE_CHECKING:
    from evals.paper.experiment import Experiment, Run

COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a6fb0", "#b8a500", "#6b7280"]
MARKERS = "osD^v"
# what an axis says of a figure, and what it is multiplied with
AXES = {
    "accuracy %": ("mean client accuracy, %", 1.0),
    "TMACs": ("training cost, TMACs", 1.0),
    "MACs of largest": ("forward pass of a sample, MMACs", 1e-6),
    "network MB / round": ("network, MB per round", 1.0),
    "participants / model": ("participants per model and round", 1.0),
    "completion s": ("a client's round, mean, s", 1.0),
    "completion std s": ("a client's round, standard deviation, s", 1.0),
    "coordinator ms / round": ("coordinator, ms per round", 1.0),
}


def shown(runs: Sequence["Run"], column: str) -> list[float]:
    """A figure of each run as its axis has it, NaN where a run has none."""
    factor = AXES.get(column, ("", 1.0))[1]
    return [factor * run.figures.get(column, np.nan) for run in runs]


def logarithmic(axis: Axes) -> None:
    """A logarithmic x axis whose labels do not overlap, however many decades it has."""
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    subs = (1.0, 2.0, 5.0) if np.log10(high / low) < 3 else (1.0,)
    axis.xaxis.set_major_locator(LogLocator(subs=subs))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend below all panels, with each label once, in as many columns (up to four) as the figure is wide for."""
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    widest = 0.5 + 0.055 * max(map(len, handles), default=0)  # inches, by the size of the letters
    columns = min(4, max(1, int(figure.get_figwidth() / widest)))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, fontsize=7,
                  frameon=False)  # fmt: skip


def panels(experiment: "Experiment", titles: Sequence[str], width: float | None = None) -> tuple[Figure, list[Axes]]:
    """A panel per title, up to three beside each other, more in rows of two."""
    columns = len(titles) if len(titles) <= 3 else 2
    figure, rows = grid(experiment, -(-len(titles) // columns), columns, width or 4.5 * columns)
    axes = [axis for row in rows for axis in row]
    for axis in axes[len(titles) :]:
        axis.set_axis_off()
    return figure, axes[: len(titles)]


def grid(experiment: "Experiment", rows: int, columns: int, width: float) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(max(5.5, width), 1 + 3 * rows), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    letters = int(11 * figure.get_figwidth())
    title = fill(experiment.title, letters)
    if experiment.not_run:
        title += "\n" + fill(f"no job yet on {', '.join(experiment.not_run)}", letters)
    figure.suptitle(title, fontsize=10)
    axes = [list(row) for row in figure.subplots(rows, columns, squeeze=False)]
    for axis in (axis for row in axes for axis in row):
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Figure, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    figure.savefig(temporary, format="png", dpi=130)
    temporary.replace(path)
