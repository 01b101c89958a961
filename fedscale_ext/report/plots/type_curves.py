"""Accuracy of each type of devices by round, of jobs whose method tells it (``results.types`` of the summary)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter
from pydantic import TypeAdapter

from fedscale_ext.core.errors import UserError
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.report.job.schema import TypeOfDevices
from fedscale_ext.report.plots import panels
from fedscale_ext.report.plots.comparison_plots import WIDTH, figure_of, style
from fedscale_ext.util.validation import faults_raise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TYPES = TypeAdapter(list[TypeOfDevices])
TITLE = "Accuracy by type of device"


def curves(job: LoadedJob) -> dict[str, np.ndarray]:
    """Type -> [n, 2] of round and mean accuracy of its devices, where it is known; empty unless there are two types or
    more. UserError where a summary is damaged."""
    rows = (job.summary.get("results") or {}).get("types")
    if not isinstance(rows, list) or not any(isinstance(row, dict) and "curve" in row for row in rows):
        return {}
    with faults_raise(UserError, f"{job.folder} is damaged, or of another version: ", "results.types"):
        types = [row for row in _TYPES.validate_python(rows) if row.curve is not None]
    known = {row.type: [pair for pair in row.curve or () if None not in pair] for row in types}
    curves_by_type = {name: np.array(pairs, dtype=np.float64).reshape(-1, 2) for name, pairs in known.items()}
    return {name: curve for name, curve in curves_by_type.items() if len(curve)} if len(curves_by_type) > 1 else {}


def drawn(curves_by_type: Mapping[str, np.ndarray], order: Sequence[str]) -> "Figure":
    """Draw a line for each type; types that are models of the job, whose ``order`` is given, have their colours."""
    figure, axis = figure_of(WIDTH, 3.1)
    panels.prepare(axis, TITLE, "round")
    few = max(map(len, curves_by_type.values())) <= 25
    are_models = set(curves_by_type) <= set(order)
    for index, (name, points) in enumerate(curves_by_type.items()):
        colour = style(order.index(name) if are_models else index)
        axis.plot(
            *points.T,
            linewidth=1.8,
            marker="o" if few else None,
            markersize=4,
            label=panels.legend_label(name),
            **colour,
        )
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    panels.legend(axis)
    return figure
