"""The forms of the paper's figures, over the runs of an experiment; several seeds are points, means are drawn."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator

from evals.paper.jobs import accuracy_by_cost, client_accuracies, global_accuracies
from evals.paper.panels import AXES, COLORS, MARKERS, grid, legend, logarithmic, panels, save, shown

if TYPE_CHECKING:
    from evals.paper.experiment import Experiment, Run

Plot = Callable[["Experiment", Sequence["Run"], Path], None]


def bars(*columns: str) -> Plot:
    """A panel per column and a row of them per data set: one bar per arm, its mean in figures, points for seeds. Arms
    without any of the columns are left out."""

    def plot(experiment: "Experiment", runs: Sequence["Run"], path: Path) -> None:
        runs = [run for run in runs if any(column in run.figures for column in columns)] or runs
        arms = list(dict.fromkeys(run.arm.label for run in runs))
        width = max(4.5, 0.45 * len(arms)) * len(columns)
        figure, axes = grid(experiment, len(_datas(runs)), len(columns), width)
        by_data = [{label: group for (label, _), group in _groups(runs, data).items()} for data in _datas(runs)]
        for row, data, groups in zip(axes, _datas(runs), by_data, strict=True):
            last = groups is by_data[-1] or list(groups) != list(by_data[-1])  # the last row's labels are for all alike
            for axis, column in zip(row, columns, strict=True):
                for index, (label, group) in enumerate(groups.items()):
                    values = shown(group, column)
                    axis.bar(index, np.mean(values), color=COLORS[arms.index(label) % len(COLORS)], alpha=0.8)
                    if len(values) > 1:
                        axis.plot([index] * len(values), values, "o", color="#1f2430", markersize=3)
                    # bars begin at zero, where differences of a point cannot be seen
                    top = np.nanmax([*values, 0.0])
                    says = "–" if np.isnan(np.mean(values)) else f"{np.mean(values):.4g}"
                    axis.annotate(says, (index, top), (0, 4), textcoords="offset points",
                                  ha="center", fontsize=7)  # fmt: skip
                axis.margins(y=0.08)
                axis.set_xticks(range(len(groups)), list(groups) if last else [], fontsize=7, rotation=30, ha="right")
                axis.set_ylabel(AXES.get(column, (column,))[0], fontsize=9)
                axis.set_title(data, fontsize=9)
        save(figure, path)

    return plot


def sweep(name: str, column: str = "accuracy %", cost: str = "TMACs", log: bool = False) -> Plot:
    """Accuracy and cost against the swept value, as Figures 10 to 13 have them; a line per data set, and a level one
    for each arm that has no value."""

    def plot(experiment: "Experiment", runs: Sequence["Run"], path: Path) -> None:
        figure, axes = panels(experiment, (column, cost))
        swept = _one_per_value(runs)
        for axis, what in zip(axes, (column, cost), strict=True):
            for number, data in enumerate(_datas(runs) if not swept else ("",)):
                of_data = [run for run in runs if not data or run.data == data]
                values = sorted({run.arm.x for run in of_data if run.arm.x is not None})
                by_value = [shown([run for run in of_data if run.arm.x == x], what) for x in values]
                axis.plot(values, list(map(np.mean, by_value)), "-o", color=COLORS[number], label=data or None)
                for x, points in zip(values, by_value, strict=True):
                    axis.plot([x] * len(points), points, ".", color=COLORS[number], alpha=0.5)
                level = _groups([run for run in of_data if run.arm.x is None])
                for style, ((label, _), group) in zip((":", "--", "-."), level.items(), strict=False):
                    axis.axhline(np.mean(shown(group, what)), ls=style, lw=1, color=COLORS[number], label=label)
            axis.set_xlabel(name)
            axis.set_ylabel(AXES.get(what, (what,))[0])
            if log:
                logarithmic(axis)
            else:
                ticks = sorted({run.arm.x for run in runs if run.arm.x is not None})
                axis.set_xticks(ticks, [f"{x:g}" for x in ticks])
        legend(figure, axes)
        save(figure, path)

    return plot


def scatter(x: str, y: str = "accuracy %") -> Plot:
    """A point per arm, x logarithmic: Figures 2 and 9."""

    def plot(experiment: "Experiment", runs: Sequence["Run"], path: Path) -> None:
        figure, axes = panels(experiment, _datas(runs))
        arms = list(dict.fromkeys(run.arm.label for run in runs))
        for axis, data in zip(axes, _datas(runs), strict=True):
            for (label, _), group in _groups(runs, data).items():
                turn, number = divmod(arms.index(label), len(COLORS))
                axis.plot(np.mean(shown(group, x)), np.mean(shown(group, y)), MARKERS[turn % len(MARKERS)],
                          color=COLORS[number], label=label)  # fmt: skip
            logarithmic(axis)
            axis.set_xlabel(AXES.get(x, (x,))[0])
            axis.set_ylabel(AXES.get(y, (y,))[0])
            axis.set_title(data, fontsize=9)
            axis.margins(x=0.1, y=0.1)
        legend(figure, axes)
        save(figure, path)

    return plot


def boxes(experiment: "Experiment", runs: Sequence["Run"], path: Path) -> None:
    """Box plots of the clients' accuracies, a panel per data set (Figure 6); clients of all seeds together."""
    runs = _with_jobs(runs)
    figure, axes = panels(experiment, _datas(runs))
    for axis, data in zip(axes, _datas(runs), strict=True):
        groups = _groups(runs, data)
        clients = [np.concatenate([client_accuracies(run.job) for run in group])
                   for group in groups.values()]  # fmt: skip
        drawn = axis.boxplot([100 * values[~np.isnan(values)] for values in clients], showfliers=False, showmeans=True)
        drawn["medians"][0].set_label("median")
        drawn["means"][0].set_label("mean")
        labels = [label for label, _ in groups]
        axis.set_xticks(range(1, len(labels) + 1), labels, fontsize=7, rotation=30, ha="right")
        axis.set_ylabel("accuracy of a client, %")
        axis.set_title(data, fontsize=9)
    legend(figure, axes)
    save(figure, path)


def curves(experiment: "Experiment", runs: Sequence["Run"], path: Path) -> None:
    """Mean client accuracy against MACs spent so far, a panel per data set (Figure 7); a line per run."""
    runs = _with_jobs(runs)
    figure, axes = panels(experiment, _datas(runs))
    arms = list(dict.fromkeys(run.arm.label for run in runs))
    for axis, data in zip(axes, _datas(runs), strict=True):
        for (label, _), group in _groups(runs, data).items():
            color = COLORS[arms.index(label) % len(COLORS)]
            for run in group:
                axis.plot(*zip(*accuracy_by_cost(run.job), strict=True), color=color,
                          label=label if run is group[0] else None)  # fmt: skip
        logarithmic(axis)
        axis.set_xlabel("training cost so far, TMACs")
        axis.set_ylabel(AXES["accuracy %"][0])
        axis.set_title(data, fontsize=9)
    legend(figure, axes)
    save(figure, path)


def by_round(experiment: "Experiment", runs: Sequence["Run"], path: Path) -> None:
    """Accuracy of the whole model on all test samples by round, a panel per data set; the mean over seeds."""
    runs = _with_jobs(runs)
    figure, axes = panels(experiment, _datas(runs))
    arms = list(dict.fromkeys(run.arm.label for run in runs))
    for axis, data in zip(axes, _datas(runs), strict=True):
        for (label, _), group in _groups(runs, data).items():
            number = arms.index(label)
            curves = [dict(global_accuracies(run.job)) for run in group]
            rounds = sorted(set.intersection(*map(set, curves)))
            means = [100 * np.mean([one[round] for one in curves]) for round in rounds]
            style = "-" if number < len(COLORS) else "--"
            axis.plot(rounds, means, style, color=COLORS[number % len(COLORS)], label=label, linewidth=1.2)
        axis.set_xlabel("round")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_ylabel("accuracy of the global model %")
        axis.set_title(data, fontsize=9)
    legend(figure, axes)
    save(figure, path)


def grouped(column: str) -> Plot:
    """A group of bars per data set, a bar per arm, points for seeds (HypeMeFed's Figure 8)."""

    def plot(experiment: "Experiment", runs: Sequence["Run"], path: Path) -> None:
        figure, (axis,) = panels(experiment, ("",), width=max(5.5, 2.6 * len(_datas(runs))))
        labels = list(dict.fromkeys(run.arm.label for run in runs))
        width = 0.85 / len(labels)
        for number, label in enumerate(labels):
            for index, data in enumerate(_datas(runs)):
                values = [run.figures[column] for run in runs if (run.arm.label, run.data) == (label, data)]
                if values:
                    x = index + (number - (len(labels) - 1) / 2) * width
                    color = COLORS[number % len(COLORS)]
                    axis.bar(x, np.mean(values), width * 0.9, color=color, alpha=0.8, label=label)
                    axis.plot([x] * len(values), values, "o", color="#1f2430", markersize=2)
        axis.set_xticks(range(len(_datas(runs))), _datas(runs), fontsize=8)
        axis.set_ylabel(column)
        legend(figure, [axis])
        save(figure, path)

    return plot


def columns(*columns: str, ylabel: str) -> Plot:
    """Several figures of the same kind side by side, a group of bars per arm and data set, points for seeds."""

    def plot(experiment: "Experiment", runs: Sequence["Run"], path: Path) -> None:
        groups = _groups(runs)
        figure, (axis,) = panels(experiment, ("",), width=max(5.5, 1.2 * len(groups)))
        width = 0.85 / len(columns)
        for number, column in enumerate(columns):
            for index, group in enumerate(groups.values()):
                values = [run.figures.get(column, np.nan) for run in group]
                x = index + (number - (len(columns) - 1) / 2) * width
                axis.bar(x, np.mean(values), width * 0.9, color=COLORS[number], alpha=0.8,
                         label=column if index == 0 else None)  # fmt: skip
                axis.plot([x] * len(values), values, "o", color="#1f2430", markersize=2)
        several = len(_datas(runs)) > 1
        labels = [fill(f"{label}, {data}" if several else label, 16) for label, data in groups]
        axis.set_xticks(range(len(groups)), labels, fontsize=8)
        axis.set_ylabel(ylabel)
        axis.legend(fontsize=7, frameon=False)
        save(figure, path)

    return plot


def lines(ylabel: str, xlabel: str, columns: Mapping[str, str]) -> Plot:
    """A line per arm over several figures of it, such as one per layer: ``columns`` says what each is called there."""

    def plot(experiment: "Experiment", runs: Sequence["Run"], path: Path) -> None:
        figure, axes = panels(experiment, _datas(runs))
        for axis, data in zip(axes, _datas(runs), strict=True):
            for number, ((label, _), group) in enumerate(_groups(runs, data).items()):
                held = [name for name in columns if all(name in run.figures for run in group)]
                means = [np.mean([run.figures[name] for run in group]) for name in held]
                positions = [list(columns).index(name) for name in held]
                style = "-o" if number < len(COLORS) else "--o"
                axis.plot(positions, means, style, color=COLORS[number % len(COLORS)],
                          label=label, markersize=3)  # fmt: skip
            axis.set_ylabel(ylabel)
            axis.set_title(data, fontsize=9)
            axis.set_xticks(range(len(columns)), list(columns.values()), fontsize=7)
            axis.set_xlabel(xlabel)
            axis.legend(fontsize=7, frameon=False)
        save(figure, path)

    return plot


def best_shares(runs: Sequence["Run"]) -> dict[str, float]:
    """Share of clients that reach their best accuracy on each arm's model; ties are shared out (Figure 1b). Of the
    seeds that have all models; none where there is no such seed."""
    labels = list(dict.fromkeys(run.arm.label for run in runs))
    shares = dict.fromkeys(labels, 0.0)
    clients = 0
    for data, seed in dict.fromkeys((run.data, run.seed) for run in runs):
        same_seed = [run for run in runs if (run.data, run.seed) == (data, seed)]
        if {run.arm.label for run in same_seed} != set(labels):
            continue  # a seed of which some models are still to be trained
        table = np.stack([client_accuracies(run.job) for run in same_seed])
        table = table[:, ~np.isnan(table).any(0)]
        best = table == table.max(0)
        for run, share in zip(same_seed, (best / best.sum(0)).sum(1), strict=True):
            shares[run.arm.label] += float(share)
        clients += table.shape[1]
    return {label: share / clients for label, share in shares.items()} if clients else {}


def best_models(experiment: "Experiment", runs: Sequence["Run"], path: Path) -> None:
    """Figure 1b: the share of clients whose best model each one is."""
    figure, (axis,) = panels(experiment, ("",))
    shares = best_shares(_with_jobs(runs))
    axis.bar(list(shares), [100 * share for share in shares.values()], color=COLORS[0])
    axis.set_ylabel("clients whose best model it is, %")
    axis.set_xlabel("model, by its MACs over those of 1x")
    axis.set_title(", ".join(_datas(runs)), fontsize=9)
    save(figure, path)


def _with_jobs(runs: Sequence["Run"]) -> list["Run"]:
    """The runs with a job; UserError where none has one."""
    with_jobs = [run for run in runs if run.log_dir]
    if not with_jobs:
        raise runs[0].has_no_job()
    return with_jobs


def _groups(runs: Sequence["Run"], data: str | None = None) -> dict[tuple[str, str], list["Run"]]:
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if data in (None, run.data):
            groups.setdefault((run.arm.label, run.data), []).append(run)
    return groups


def _datas(runs: Sequence["Run"]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.data for run in runs))


def _one_per_value(runs: Sequence["Run"]) -> bool:
    """Whether the data set itself is what is swept (Figure 13)."""
    return len(_datas(runs)) > 1 and all(len({run.arm.x for run in runs if run.data == d}) == 1 for d in _datas(runs))
