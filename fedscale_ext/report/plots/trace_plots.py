"""One picture of traces: how fast devices compute and communicate, and when they are online."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.traces.columns import AvailabilityTrace, CapacityTrace
from fedscale_ext.population.traces.statistics import histogram, online
from fedscale_ext.util.atomic_files import refusing

if TYPE_CHECKING:  # slow to import, and most look only at the table
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
_INK, _MUTED, _GRID, _MAIN, _SECOND = "#1f2430", "#6b7280", "#e5e7eb", "#2563a8", "#d97706"
_POINTS = 20_000  # more devices than this are drawn as a sample of them


def check_plot(path: Path, force: bool) -> None:
    """Check that a picture can be written to ``path``; UserError otherwise."""
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"{path} must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, the formats of a picture")
    if path.exists() and not force:
        raise UserError(f"{path} exists: name another file or add --force")


def plot_traces(path: Path, capacity: CapacityTrace | None, availability: AvailabilityTrace | None) -> None:
    """Draw the given traces and write the picture to ``path``; UserError where it cannot be written."""
    from fedscale_ext.report.plots.figure_files import save_figure

    figure = draw(capacity, availability)
    with refusing(path):
        save_figure(figure, path)


def draw(capacity: CapacityTrace | None, availability: AvailabilityTrace | None) -> "Figure":
    """A row of three panels for each trace that is given."""
    from fedscale_ext.report.plots.literal_figure import LiteralFigure

    rows = [trace for trace in (capacity, availability) if trace is not None]
    height = 3.9 * len(rows)
    figure = LiteralFigure(figsize=(13, height))
    axes = figure.subplots(len(rows), 3, squeeze=False)
    figure.subplots_adjust(0.06, 0.6 / height, 0.985, 1 - 0.4 / height, wspace=0.24, hspace=0.4)
    if capacity is not None:
        _capacity(axes[0], capacity)
    if availability is not None:
        _availability(axes[len(rows) - 1], availability)
    return figure


def _capacity(axes: "np.ndarray", trace: CapacityTrace) -> None:
    what = f"{len(trace):,} {'resampled' if trace.resampled else 'traced'} devices"
    _tidy(axes[0], f"Computation of {what}", "ms per sample", "devices")
    _bars(axes[0], *histogram(trace.computation_ms, 40))
    _tidy(axes[1], "Communication", "kbit/s", "devices")
    _logarithmic(axes[1], "x", trace.communication_kbps)
    _bars(axes[1], *histogram(trace.communication_kbps, 40, log=True))
    some = np.linspace(0, len(trace) - 1, min(len(trace), _POINTS)).astype(np.int64)
    _tidy(axes[2], "Both of each device", "ms per sample", "kbit/s")
    _logarithmic(axes[2], "y", trace.communication_kbps)
    shade = float(np.clip(400 / len(some), 0.04, 0.7))
    axes[2].scatter(
        trace.computation_ms[some], trace.communication_kbps[some], s=6, color=_MAIN, alpha=shade, linewidths=0,
        rasterized=True,
    )  # fmt: skip


def _availability(axes: "np.ndarray", trace: AvailabilityTrace) -> None:
    presence = online(trace)
    what = f"{len(trace):,} {'resampled' if trace.resampled else 'traced'} clients"
    _tidy(axes[0], f"Online by hour, {what}", "hour of the trace's day", "% of clients")
    axes[0].step(
        np.arange(25), 100 * np.append(presence.by_hour, presence.by_hour[-1]), where="post", color=_SECOND, lw=2
    )
    axes[0].set(xlim=(0, 24), ylim=(0, None), xticks=range(0, 25, 4))
    _tidy(axes[1], "Share of time online", "% of its period", "% of clients, at most so much")
    steps = 100 * np.arange(len(trace) + 1) / len(trace)
    axes[1].step([0, *100 * np.sort(presence.share), 100], [*steps, 100], where="post", color=_SECOND, lw=2)
    axes[1].set(xlim=(0, 100), ylim=(0, 100))
    _tidy(axes[2], "Length of an interval", "minutes", "intervals")
    long = presence.minutes[presence.minutes > 0]
    if len(long):
        _logarithmic(axes[2], "x", long)
        _bars(axes[2], *histogram(long, 40, log=True), colour=_SECOND)


def _bars(axis: "Axes", counts: np.ndarray, edges: np.ndarray, colour: str = _MAIN) -> None:
    if edges[0] == edges[-1]:
        edges = edges * np.array([0.95, 1.05])
    axis.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colour, edgecolor="white", linewidth=0.4)


def _logarithmic(axis: "Axes", which: Literal["x", "y"], values: np.ndarray) -> None:
    """Make an axis logarithmic, with so few labels that they stand apart. ``values`` are drawn on it, all above 0."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis.set(**{f"{which}scale": "log"})
    ticks = axis.xaxis if which == "x" else axis.yaxis
    ratio = values.max() / values.min()
    powers = LogLocator(subs=(1, 2, 5) if ratio < 50 else (1,))
    ticks.set_major_locator(MaxNLocator(4) if ratio < 5 else powers)
    ticks.set_minor_locator(NullLocator())
    ticks.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _tidy(axis: "Axes", title: str, x: str, y: str) -> None:
    axis.set_title(title, loc="left", color=_INK, fontsize=11.5, fontweight="bold")
    axis.set_xlabel(x, color=_MUTED, fontsize=9)
    axis.set_ylabel(y, color=_MUTED, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_GRID)
    axis.tick_params(which="both", colors=_MUTED, labelsize=9, length=0)
    axis.grid(axis="y", color=_GRID, linewidth=0.8)
    axis.set_axisbelow(True)
