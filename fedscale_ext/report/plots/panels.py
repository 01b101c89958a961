"""The panels of a job's picture, each drawn on axes that are given."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedscale_ext.core.types import RoundRecord, members
from fedscale_ext.metrics.accuracy import accuracy, client_accuracy
from fedscale_ext.report.job.model_order import model_order

INK, MUTED = "#1f2430", "#6b7280"
GRID, MAIN, _SECOND = "#e5e7eb", "#2563a8", "#d97706"
# told apart under colour blindness (after Okabe and Ito)
MODELS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a6fb0", "#b8a500"]
_FEW = 25  # up to so many points each gets a mark
_SMOOTH = 40  # from so many rounds on the training loss is smoothed
_BARS = 60  # at most so many bars
_NAMES = 12  # at most so many models in a legend
_LETTERS = 52  # of a line below a narrow panel
_LETTERS_WITHIN = 44  # within one
_ROWS = 4  # at most, of a legend within a panel
_SHOWN = "\u2060"  # begins labels that would begin with an underscore; it has no width
_ROW = 0.19  # inches, of a legend


def shade_of(key: str, order: Sequence[str]) -> dict[str, Any]:
    """Colour of a model, or of clients' versions of it, in a job's order of models."""
    model = "+".join(members(key))
    return shade(order.index(model if model in order else key))


def shade(index: int) -> dict[str, Any]:
    """Colour of the model at a place of that order; after as many as there are, they come again lighter."""
    return {"color": MODELS[index % len(MODELS)], "alpha": max(0.25, 1 - 0.3 * (index // len(MODELS)))}


def accuracy_over(axis: Axes, tested: Sequence[RoundRecord], x: Sequence[float], what: str, label: str = "") -> None:
    """Mean accuracy with the middle half of the clients and the worst one, against ``x`` of each record."""
    prepare(axis, f"Accuracy by {what}", label or what)
    axis.set_ylim(0, 1)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    figures = [accuracy(record.evaluation) for record in tested if record.evaluation]
    if not any(figure.tested for figure in figures):
        return nothing(axis, "no client was tested")
    mean = [figure.mean for figure in figures]
    q1, q3 = [figure.q1 for figure in figures], [figure.q3 for figure in figures]
    mark = "o" if len(figures) < _FEW else None
    axis.plot(x, mean, color=MAIN, linewidth=2, marker=mark, markersize=4, label="mean of clients", clip_on=False)
    axis.fill_between(x, q1, q3, color=MAIN, alpha=0.16, linewidth=0, label="middle half of clients")
    worst = [figure.worst for figure in figures]
    axis.plot(x, worst, color=MAIN, linewidth=1.2, linestyle=":", marker=mark, markersize=2, label="worst client")
    axis.annotate(
        f"{mean[-1]:.1%}", (x[-1], mean[-1]), (0, 7), textcoords="offset points", ha="right", color=MAIN,
        fontsize=11, fontweight="bold", path_effects=[withStroke(linewidth=3, foreground="white")],
    )  # fmt: skip
    axis.set_xlim(0, max(x[-1], 1e-12))
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=what == "round"))
    legend(axis)


def loss(axis: Axes, records: Sequence[RoundRecord], tested: Sequence[RoundRecord]) -> None:
    """Training loss of each round, smoothed where there are many, and test loss, against rounds."""
    prepare(axis, "Loss", "round")
    rounds = [record.round for record in records]
    losses = np.array([record.train_loss for record in records])
    mark = "o" if len(records) < _FEW else None
    if len(records) < _SMOOTH:
        axis.plot(rounds, losses, color=_SECOND, linewidth=2, marker=mark, markersize=4, label="training")
    else:
        window = len(records) // 20
        axis.plot(rounds, losses, color=_SECOND, linewidth=1, alpha=0.35)
        mean = _running_mean(losses, window)
        axis.plot(rounds, mean, color=_SECOND, linewidth=2, label=f"training (mean of {window} rounds)")
    values = [accuracy(record.evaluation).loss for record in tested if record.evaluation]
    mark = "o" if len(values) < _FEW else None
    at = [record.round for record in tested]
    axis.plot(at, values, color=MAIN, linewidth=2, marker=mark, markersize=4, label="test, over samples")
    finite = [value for value in [*losses, *values] if np.isfinite(value)]
    axis.set_ylim(0, 1.08 * max(finite, default=1.0) or 1.0)
    axis.set_xlim(0, rounds[-1] * 1.01)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    legend(axis)


def participants(axis: Axes, records: Sequence[RoundRecord]) -> None:
    """Participants of each model, stacked, against rounds; many rounds are averaged in equal bins."""
    size = -(-len(records) // _BARS)
    prepare(axis, "Participants per model", "round" + (f" (mean of {size} rounds)" if size > 1 else ""))
    trained = {key for record in records for key in record.assignments}
    keys = [key for key in model_order(records) if key in trained]  # which come first there
    if not keys:
        return nothing(axis, "nobody took part")
    bins = [records[start : start + size] for start in range(0, len(records), size)]
    left = np.array([group[0].round for group in bins]) - 0.5
    width = np.diff(left, append=records[-1].round + 0.5)
    bottom = np.zeros(len(bins))
    for index, key in enumerate(keys):
        height = np.array([np.mean([record.assignments.get(key, 0) for record in group]) for group in bins])
        axis.bar(
            left,
            height,
            width,
            bottom,
            align="edge",
            edgecolor="white",
            linewidth=0.4,
            label=legend_label(key),
            **shade(index),
        )
        bottom += height
    axis.set_xlim(left[0], records[-1].round + 0.5)
    axis.set_ylim(0, bottom.max() / (0.97 - 0.09 * legend_above(axis)))  # a row takes a twelfth of a small panel
    for ticks in (axis.xaxis, axis.yaxis):
        ticks.set_major_locator(MaxNLocator(6, integer=True))


def models_over(axis: Axes, records: Sequence[RoundRecord]) -> None:
    """Number of models against rounds."""
    prepare(axis, "Models per round", "")
    rounds = [record.round for record in records]
    axis.step(rounds, [record.models for record in records], where="post", color=MAIN, linewidth=2)
    axis.set_ylim(0, max(record.models for record in records) + 0.5)
    axis.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def lives(axis: Axes, models: Sequence[tuple[str, int, float, str, str]], records: Sequence[RoundRecord]) -> None:
    """Each model (key, round of birth, MACs, what made it, its size) as a line from its birth on, one above another."""
    last_round, order = records[-1].round, model_order(records, [model[0] for model in models])
    prepare(axis, "Each model from its birth on, smallest below", "round")
    axis.grid(visible=False)
    for row, (key, birth, _, origin, size) in enumerate(sorted(models, key=lambda model: model[2])):
        (line,) = axis.plot([birth, last_round], [row] * 2, linewidth=6, **shade(order.index(key)))
        line.set_solid_capstyle("butt")
        if birth >= last_round:  # a line without length
            line.set(marker="|", markersize=8, markeredgewidth=4, clip_on=False)
        # beside its line where that begins late, so that the words stay in the picture
        late = birth > 0.55 * last_round
        for shift, words, ink, weight in ((9, f"{key}  {origin}", INK, "bold"), (-13, size, MUTED, "normal")):
            axis.annotate(
                words, (last_round if late else birth, row), (0, shift), textcoords="offset points", color=ink,
                fontsize=8.5, fontweight=weight, ha="right" if late else "left", va="center",
            )  # fmt: skip
    axis.set_ylim(-0.6, len(models) - 0.4)
    axis.set_yticks([])
    axis.set_xlim(0, last_round)
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def clients(axis: Axes, tested: Sequence[RoundRecord]) -> None:
    """Histogram of the clients' accuracies in the last evaluation, with its quartiles, mean and worst."""
    prepare(axis, f"Clients after round {tested[-1].round}" if tested else "Clients", "accuracy of a client")
    axis.set_xlim(0, 1)
    axis.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    last = tested[-1].evaluation if tested else None
    values = client_accuracy(last) if last else np.array([])
    values = values[~np.isnan(values)]
    if not len(values):
        return nothing(axis, "no client was tested")
    axis.hist(
        values,
        bins=[edge / 20 for edge in range(21)],
        color=MAIN,
        alpha=0.75,
        edgecolor="white",
        linewidth=0.8,
    )
    q1, median, q3 = np.quantile(values, (0.25, 0.5, 0.75))
    axis.axvspan(q1, q3, color=MAIN, alpha=0.12, linewidth=0, zorder=0, label=f"IQR {q3 - q1:.1%}")
    axis.axvline(values.mean(), color=INK, linewidth=1.5, label=f"mean {values.mean():.1%}")
    axis.axvline(median, color=INK, linewidth=1.2, linestyle="--", label=f"median {median:.1%}")
    axis.axvline(values.min(), color=_SECOND, linewidth=1.5, label=f"worst {values.min():.1%}")
    axis.set_ylabel("clients", color=MUTED, fontsize=9)
    axis.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    legend(axis)


def prepare(axis: Axes, title: str, xlabel: str) -> None:
    """Title, label and lines of a panel, as all panels have them."""
    axis.set_title(title, loc="left", color=INK, fontsize=11.5, fontweight="bold", pad=8)
    axis.set_xlabel(xlabel, color=MUTED, fontsize=9)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.spines["bottom"].set_color(GRID)
    axis.tick_params(colors=MUTED, labelsize=9, length=0, pad=5)
    axis.grid(axis="y", color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)


def legend_label(name: str) -> str:
    """The label of a line or bar, of which matplotlib leaves those that begin with an underscore out of legends."""
    return f"{_SHOWN}{name}" if name.startswith("_") else name


def legend_entries(axis: Axes) -> tuple[list[Any], list[str]]:
    """Lines and bars with their names, for a legend."""
    handles, labels = axis.get_legend_handles_labels()
    return handles, [label.removeprefix(_SHOWN) for label in labels]


def legend(axis: Axes) -> None:
    """Names of the lines, where they hide least."""
    axis.legend(*legend_entries(axis), frameon=False, fontsize=8.5, labelcolor=INK, loc="best")


def legend_above(axis: Axes) -> int:
    """Names of a stack of bars in rows above them; many are cut short. Return the rows that need room."""
    handles, labels, columns = _columns(*legend_entries(axis), _LETTERS_WITHIN, _ROWS)
    axis.legend(
        handles, labels, frameon=False, fontsize=8.5, ncols=columns, loc="upper left",
        labelcolor=INK, handlelength=1, handletextpad=0.5, columnspacing=1,
    )  # fmt: skip
    return -(-len(labels) // columns)


def legend_below(axis: Axes) -> None:
    """The same below the panel, outside it, in as many columns as the names leave room for."""
    handles, labels, columns = _columns(*legend_entries(axis), _LETTERS, _NAMES)
    figure = axis.get_figure(root=True)
    assert figure is not None
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + _ROW * max(0, rows - 2))  # rows take no height from the panel
    figure.legend(
        handles, labels, frameon=False, fontsize=8.5, ncols=columns,
        loc="outside lower left", labelcolor=INK, handlelength=1, handletextpad=0.5, columnspacing=1,
    )  # fmt: skip


def _columns(handles: list[Any], labels: list[str], letters: int, rows: int) -> tuple[list[Any], list[str], int]:
    """Handles and names that fit into rows of ``letters``, and the columns; the last says how many more there are."""
    labels = [name if len(name) <= letters else f"{name[: letters // 2]}…{name[-letters // 3 :]}" for name in labels]
    entry = max((len(name) for name in labels[:_NAMES]), default=1) + 4  # letters of a name, and of its colour
    columns = max(1, min(_NAMES // 2, letters // entry))
    most = min(_NAMES, rows * columns)
    if len(labels) > most:
        labels[most - 1] = f"+ {len(labels) - most + 1} more"
    return handles[:most], labels[:most], columns


def nothing(axis: Axes, why: str) -> None:
    """A panel that has nothing to show says why."""
    axis.text(0.5, 0.5, why, transform=axis.transAxes, ha="center", va="center", color=MUTED, fontsize=10)


def _running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean over the last ``window`` values, without those that are NaN or infinite; NaN where all are."""
    known = np.isfinite(values)
    sums = np.cumsum(np.concatenate([[0.0], np.where(known, values, 0.0)]))
    counts = np.cumsum(np.concatenate([[0], known]))
    end = np.arange(1, len(values) + 1)
    start = np.maximum(0, end - window)
    count = counts[end] - counts[start]
    return np.where(count > 0, (sums[end] - sums[start]) / np.maximum(count, 1), np.nan)
