"""One picture of a data set: who has how many samples of which class, clients' sizes, and a sample of each class."""

import io
import math
from typing import TYPE_CHECKING

import numpy as np

from fedscale_ext.data.layout.overview import Overview
from fedscale_ext.data.store import DataSet
from fedscale_ext.data.wording import quantile_text
from fedscale_ext.report.plots.panels import INK, MAIN, MUTED

if TYPE_CHECKING:  # slow to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLIENTS, _CLASSES, _EXAMPLES = 60, 40, 20  # at most so many are shown
_BARS = 30
_LETTERS = 14
_DPI = 130
_FLAT = 3  # times as wide as high


def png(data: DataSet, seen: Overview) -> bytes:
    """Return the picture as the bytes of a PNG file."""
    out = io.BytesIO()
    draw(data, seen).savefig(out, format="png", dpi=_DPI)
    return out.getvalue()


def draw(data: DataSet, seen: Overview) -> "Figure":
    """Draw a data set; of many clients or classes a part is shown, and the titles say so."""
    from fedscale_ext.report.plots.literal_figure import LiteralFigure

    figure = LiteralFigure(figsize=(12, 7), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[3, 2])[0]
    kind = "generated" if data.generated else "real"
    figure.suptitle(f"{data.name} ({kind}): {len(seen.clients):,} clients, {int(seen.train.sum()):,} training samples")
    _who_has_what(left.subplots(), seen)
    above, below = right.subfigures(2, 1, squeeze=False, height_ratios=[2, 3])[:, 0]
    _sizes(above.subplots(), seen)
    _examples(below, data, seen)
    return figure


def _who_has_what(axis: "Axes", seen: Overview) -> None:
    """Clients by classes, the largest client on top; a darker cell has more samples."""
    order = np.argsort(-seen.train.sum(1), kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(_CLIENTS, len(order))).astype(int))]
    classes = min(len(seen.classes), _CLASSES)
    counts = seen.train[shown][:, :classes]
    image = axis.imshow(np.log1p(counts), aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
    axis.set_xticks(range(classes), [_short(name) for name in seen.classes[:classes]], rotation=90, fontsize=7)
    axis.set_yticks(range(len(shown)), [_short(seen.clients[client]) for client in shown], fontsize=6)
    parts = [f"{len(shown)} of {len(order):,} clients"] if len(shown) < len(order) else []
    parts += [f"{classes} of {len(seen.classes):,} classes"] if classes < len(seen.classes) else []
    axis.set_title("training samples by client and class" + (f": {', '.join(parts)}" if parts else ""), fontsize=10)
    bar = axis.figure.colorbar(image, ax=axis, shrink=0.6)
    ticks = [tick for tick in (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000) if tick <= max(1, counts.max())]
    bar.set_ticks([float(np.log1p(tick)) for tick in ticks], labels=[f"{tick:,}" for tick in ticks])


def _sizes(axis: "Axes", seen: Overview) -> None:
    from matplotlib.ticker import MaxNLocator

    sizes = seen.train.sum(1)
    step = math.ceil((int(sizes.max()) - int(sizes.min()) + 1) / _BARS)  # whole numbers: each bar has equally many
    edges = np.arange(sizes.min() - 0.5, sizes.max() + 0.5 + step, step).tolist()
    axis.hist(sizes, bins=edges, color=MAIN)
    median = float(np.median(sizes))
    axis.axvline(median, color=INK, linewidth=1, linestyle=":")
    axis.set_title(f"clients by training samples, median {quantile_text(median)}", fontsize=10)
    axis.set_xlabel("training samples", color=MUTED)
    axis.set_ylabel("clients", color=MUTED)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.spines[["top", "right"]].set_visible(False)


def _examples(part: "Figure", data: DataSet, seen: Overview) -> None:  # a SubFigure, which has the methods of a Figure
    """The first training sample of each class; values of several channels as one map below the other."""
    present = np.flatnonzero(seen.examples >= 0)[:_EXAMPLES]
    columns = min(5, max(1, len(present)))
    axes = part.subplots(-(-max(1, len(present)) // columns), columns, squeeze=False).ravel()
    part.suptitle("a sample of each class", fontsize=10)
    for axis in axes:
        axis.axis("off")
    for axis, label in zip(axes, present, strict=False):
        sample = np.asarray(data.x[seen.examples[label]]).astype(np.float32)
        picture = (
            sample.transpose(1, 2, 0) / 255
            if len(sample) == 3 and data.x.dtype == np.uint8
            else np.concatenate(list(sample))
        )
        flat = picture.shape[1] > _FLAT * picture.shape[0]  # the window of a signal
        axis.imshow(picture, cmap="gray", aspect="auto" if flat else "equal", interpolation="nearest")
        axis.set_title(_short(seen.classes[label]), fontsize=7, pad=2)


def _short(name: str) -> str:
    return name if len(name) <= _LETTERS else name[: _LETTERS - 1] + "…"
