"""Plots of several jobs: accuracy on its way, over clients and by class of device, and what it costs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedscale_ext.metrics.accuracy import accuracy
from fedscale_ext.report.compare.arm_labels import short
from fedscale_ext.report.compare.arms import Arm, pooled
from fedscale_ext.report.compare.columns import BY_KEY
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.report.plots.courses import macs_by_round, mean_course, time_unit
from fedscale_ext.report.plots.devices import DeviceClasses, device_classes
from fedscale_ext.report.plots.panels import GRID, INK, MODELS, MUTED, legend_entries, legend_label, nothing, prepare
from fedscale_ext.util.quantities import quantity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 3.9  # inches of a plot: about a phone's width, so that its words stay readable there
_DASHES = ("-", "--", ":", "-.")  # from so many arms on, colours come again with the next of them
_POINTS = 201
_BARS = ("macs", "network", "suite", "served")


def plots(arms: Sequence[Arm]) -> dict[str, tuple[str, "Figure"]]:
    """Name -> (title, figure) of each comparison."""
    classes = device_classes(arms)
    on_legend = 0.19 * len(arms) if len(arms) > 1 else 0.0
    plots: dict[str, tuple[str, Callable[[Axes], None], float]] = {
        "accuracy_rounds": ("Accuracy by round", lambda axis: _course(axis, arms, "rounds"), 2.9 + on_legend),
        "accuracy_time": ("Accuracy by virtual time", lambda axis: _course(axis, arms, "time"), 2.9 + on_legend),
        "accuracy_macs": ("Accuracy by computation", lambda axis: _course(axis, arms, "macs"), 2.9 + on_legend),
        "clients_box": ("Accuracy of the clients", lambda axis: _boxes(axis, arms), 1.0 + 0.52 * len(arms)),
        "clients_cdf": ("Share of clients up to an accuracy", lambda axis: _cdf(axis, arms), 2.9 + on_legend),
        "devices": ("Accuracy by class of device", lambda axis: _devices(axis, arms, classes), 2.9 + on_legend),
    }
    for key in _BARS:
        title = {"macs": "Computation", "network": "Network", "suite": "Storage of all models",
                 "served": "Storage of a client"}[key]  # fmt: skip
        plots[f"cost_{key}"] = (title, partial(_bars, arms=arms, key=key), 0.9 + 0.52 * len(arms))
    if all(means is None for means in classes.means):
        del plots["devices"]  # the page says why
    return {name: (title, _drawn(title, draw, height)) for name, (title, draw, height) in plots.items()}


def figure_of(width: float, height: float) -> tuple["Figure", Axes]:
    """A figure with one panel whose words stay inside."""
    from fedscale_ext.report.plots.literal_figure import LiteralFigure

    figure = LiteralFigure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _drawn(title: str, draw: Callable[[Axes], None], height: float) -> "Figure":
    figure, axis = figure_of(WIDTH, height)
    prepare(axis, title, "")
    draw(axis)
    return figure


def style(index: int) -> dict[str, Any]:
    """Colour and dashes of the arm at a place."""
    return {"color": MODELS[index % len(MODELS)], "linestyle": _DASHES[index // len(MODELS) % len(_DASHES)]}


def _legend_below(axis: Axes, arms: Sequence[Arm]) -> None:
    if len(arms) > 1:
        axis.figure.legend(  # type: ignore[union-attr]
            *legend_entries(axis), loc="outside lower left", frameon=False, fontsize=8.5, labelcolor=INK,
        )  # fmt: skip


_PER_CENT = FuncFormatter(lambda value, _: f"{100 * value:.4g}%")  # with the digits that neighbours need


def _per_cent(axis: Axes, which: str = "y") -> None:
    (axis.yaxis if which == "y" else axis.xaxis).set_major_formatter(_PER_CENT)


def _course(axis: Axes, arms: Sequence[Arm], by: str) -> None:
    """Mean accuracy against rounds, hours or MACs: mean over seeds, and a band of one standard deviation."""
    duration_s = max((job.records[-1].virtual_clock_s for arm in arms for job in arm.jobs), default=0.0)
    unit, divisor = time_unit(duration_s)
    any_line = False
    for index, arm in enumerate(arms):
        lines = [_line(job, by, divisor) for job in arm.jobs]
        if not all(lines):
            continue
        x, mean, spread = mean_course(lines, ended=all(job.finished for job in arm.jobs))
        if not len(x):
            continue
        any_line = True
        mark = "o" if len(x) < 2 else None
        axis.plot(x, mean, linewidth=2, marker=mark, label=legend_label(short(arm.label)), **style(index))
        if len(lines) > 1:
            low, high = np.clip(mean - spread, 0, 1), np.clip(mean + spread, 0, 1)
            axis.fill_between(x, low, high, color=style(index)["color"], alpha=0.15, linewidth=0)
    if not any_line:
        return nothing(axis, "no client was tested")
    axis.set_xlabel({"rounds": "round", "time": f"virtual time ({unit})", "macs": "MACs of all clients"}[by],
                    color=MUTED, fontsize=9)  # fmt: skip
    axis.set_xlim(left=0)
    _from_zero(axis)
    _per_cent(axis)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=by == "rounds"))
    if by == "macs":
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    _legend_below(axis, arms)


def _from_zero(axis: Axes) -> None:
    """From zero to above the highest mark: margins alone are a share of the range, which may be next to nothing."""
    top = axis.dataLim.y1
    axis.set_ylim(0, 1.08 * top if np.isfinite(top) and top > 0 else 1)


def _line(job: LoadedJob, by: str, divisor: float) -> list[tuple[float, float]]:
    macs, line = macs_by_round(job.records), []
    for record in job.records:
        if record.evaluation is not None and not np.isnan(accuracy(record.evaluation).mean):
            x = {"rounds": record.round, "time": record.virtual_clock_s / divisor, "macs": macs[record.round]}[by]
            line.append((float(x), accuracy(record.evaluation).mean))
    return line


def _boxes(axis: Axes, arms: Sequence[Arm]) -> None:
    """Quartiles, whiskers to the 5th and 95th percentile, worst and best as points, mean as a diamond."""
    drawn = [(index, values) for index, arm in enumerate(arms) if len(values := pooled(arm))]
    if not drawn:
        return nothing(axis, "no client was tested")
    for index, values in drawn:
        color = style(index)["color"]
        low, q1, median, q3, high = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95))
        axis.plot([low, high], [index] * 2, color=color, linewidth=1.4, zorder=2)
        axis.barh(index, q3 - q1, 0.5, q1, color=color, alpha=0.45, zorder=3)
        axis.plot([median] * 2, [index - 0.25, index + 0.25], color=INK, linewidth=1.8, zorder=4)
        axis.plot([values.min(), values.max()], [index] * 2, "o", color=color, markersize=3.5, zorder=2, clip_on=False)
        axis.plot(values.mean(), index, "D", color=INK, markersize=4, zorder=5)
    _names(axis, arms)
    axis.set_xlim(0, 1.01)
    _per_cent(axis, "x")


def _names(axis: Axes, arms: Sequence[Arm]) -> None:
    """Each arm's name above its bar: beside it, a long one would leave no room for the bar."""
    for index, arm in enumerate(arms):
        axis.annotate(short(arm.label), (0, index - 0.36), (0, 2), textcoords="offset points", xycoords=(
            "axes fraction", "data"), va="bottom", color=INK, fontsize=8.5)  # fmt: skip
    axis.set_yticks([])
    axis.set_ylim(len(arms) - 0.5, -0.85)
    axis.grid(visible=False, axis="y")
    axis.grid(visible=True, axis="x", color=GRID, linewidth=0.8)


def _cdf(axis: Axes, arms: Sequence[Arm]) -> None:
    shares = np.linspace(0, 1, _POINTS)
    for index, arm in enumerate(arms):
        if len(values := pooled(arm)):
            at = np.quantile(values, shares, method="inverted_cdf")
            axis.plot(
                at, shares, linewidth=1.8, label=legend_label(short(arm.label)), drawstyle="steps-post", **style(index)
            )
    if not axis.lines:
        return nothing(axis, "no client was tested")
    axis.set_xlim(0, 1)
    axis.set_ylim(0, 1)
    _per_cent(axis, "x")
    _per_cent(axis)
    axis.set_xlabel("accuracy of a client", color=MUTED, fontsize=9)
    _legend_below(axis, arms)


def _devices(axis: Axes, arms: Sequence[Arm], classes: DeviceClasses) -> None:
    """Mean accuracy of the clients in each class of devices by capacity."""
    for index, (arm, means) in enumerate(zip(arms, classes.means, strict=True)):
        if means is not None:
            name = legend_label(short(arm.label))
            axis.plot(range(len(means)), means, marker="o", markersize=5, linewidth=1.8, label=name, **style(index))
    names = [name.replace(" ", "\n") for name in classes.names]  # side by side, six would overlap
    axis.set_xticks(range(len(names)), names)
    axis.set_xlim(-0.3, len(names) - 0.7)
    _from_zero(axis)
    _per_cent(axis)
    axis.set_xlabel("devices by what they can compute", color=MUTED, fontsize=9)
    _legend_below(axis, arms)


def _bars(axis: Axes, arms: Sequence[Arm], key: str) -> None:
    """A bar per arm with its value; whiskers of one standard deviation over seeds."""
    figure = BY_KEY[key]
    means = [arm.mean(key) for arm in arms]
    if all(mean is None for mean in means):
        return nothing(axis, "not known before a job ends")
    top = max(mean for mean in means if mean is not None)
    for index, (arm, mean) in enumerate(zip(arms, means, strict=True)):
        if mean is None:
            why = f"not finished: {arm.progress}" if arm.progress else "not known"
            axis.annotate(why, (0, index), (5, 0), textcoords="offset points", va="center", color=MUTED, fontsize=8.5)
            continue
        axis.barh(index, mean, 0.46, color=style(index)["color"], alpha=0.85)
        spread = arm.std(key) or 0.0
        if spread:
            axis.plot([mean - spread, mean + spread], [index] * 2, color=INK, linewidth=1.2)
        unit = "MACs" if key == "macs" else " MB"
        axis.annotate(f"{figure.tell(mean)}{unit}", (mean + spread, index), (5, 0), textcoords="offset points",
                      va="center", color=INK, fontsize=8.5)  # fmt: skip
    _names(axis, arms)
    axis.grid(visible=False)
    axis.set_xlim(0, 1.35 * top or 1)
    axis.set_xticks([])
    axis.spines["bottom"].set_visible(False)
    axis.set_xlabel(figure.note, color=MUTED, fontsize=8.5)
