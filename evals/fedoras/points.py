"""Figures of rows, of which not every one has all columns: bars of a column; a point each, a colour per kind."""

from collections.abc import Sequence
from pathlib import Path

from evals.paper.experiment import Experiment, Run
from evals.paper.panels import COLORS, MARKERS, legend, panels, save
from evals.paper.plots import Plot, bars


def bars_of(column: str) -> Plot:
    """A bar for each row that has the column, a panel per data set."""

    def plot(experiment: Experiment, runs: Sequence[Run], path: Path) -> None:
        measured = [run for run in runs if column in run.figures]
        if measured:
            bars(column)(experiment, measured, path)

    return plot


def kinds(x: str, y: str) -> Plot:
    """A panel per data set; points of all seeds. Labels are "KIND, which one"."""

    def plot(experiment: Experiment, runs: Sequence[Run], path: Path) -> None:
        datas = list(dict.fromkeys(run.data for run in runs))
        names = list(dict.fromkeys(run.arm.label.partition(", ")[0] for run in runs))
        figure, axes = panels(experiment, datas)
        for axis, data in zip(axes, datas, strict=True):
            for number, name in enumerate(names):
                of_kind = [run for run in runs if run.data == data and run.arm.label.partition(", ")[0] == name]
                axis.plot([run.figures[x] for run in of_kind], [run.figures[y] for run in of_kind],
                          MARKERS[number % len(MARKERS)], color=COLORS[number], alpha=0.8, label=name)  # fmt: skip
            axis.set_xlabel(x)
            axis.set_ylabel(y)
            axis.set_title(data, fontsize=9)
            axis.margins(0.1)
        legend(figure, axes)
        save(figure, path)

    return plot
