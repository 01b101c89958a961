"""Plots of one job: its models over time, who trained them, what devices are served which, what a search found, and how
each type of devices fares."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import PercentFormatter

from fedscale_ext.core.types import is_personal, members
from fedscale_ext.report.job.lineage import grew, lives
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.report.job.model_order import model_order
from fedscale_ext.report.plots import panels, searches, type_curves
from fedscale_ext.report.plots.comparison_plots import WIDTH, figure_of
from fedscale_ext.report.plots.devices import Assignment, assignment
from fedscale_ext.util.quantities import quantity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE = 9.4


def plots(job: LoadedJob) -> Mapping[str, tuple[str, "Figure"]]:
    """Plots of one job: name -> (title, figure).

    Plots without content are left out: models that never changed, capacities that were not recorded, and searches or
    types that the job does not have.
    """
    plots = {}
    if grew(job.summary):
        plots["models"] = ("Models over time", _models(job))
    plots["participants"] = ("Participants per model", _participants(job))
    if (shares := assignment(job)) is not None:
        plots["assignment"] = ("Models by capacity of the device", _assignment(job, shares))
    if judged := searches.tier_searches(job):
        plots["search"] = (searches.TITLE, searches.drawn(job, judged))
    if by_type := type_curves.curves(job):
        plots["types"] = (type_curves.TITLE, type_curves.drawn(by_type, model_order(job.records)))
    return plots


def _models(job: LoadedJob) -> "Figure":
    models = lives(job.summary)
    figure, axis = figure_of(WIDE, 1.2 + 0.55 * len(models))
    panels.lives(axis, models, job.records)
    return figure


def _participants(job: LoadedJob) -> "Figure":
    figure, axis = figure_of(WIDTH, 3.1)
    panels.participants(axis, job.records)
    return figure


def _assignment(job: LoadedJob, shares: Assignment) -> "Figure":
    """The share of clients that each model is served to, from the weakest devices to the strongest."""
    figure, axis = figure_of(WIDTH, 3.1)
    panels.prepare(axis, "Models by capacity of the device", "capacity of the device, MACs per sample")
    bottom = np.zeros(shares.share.shape[1])
    order = model_order(job.records)
    for key, share in zip(shares.models, shares.share, strict=True):
        shade = panels.shade_of(key, order)
        axis.bar(
            np.arange(len(share)), share, 0.94, bottom, align="edge", label=panels.legend_label(_label(key)), **shade
        )
        bottom += share
    if shares.kinds is not None:
        axis.set_xticks(np.arange(len(bottom)) + 0.47, shares.kinds)
    else:
        ticks = list(range(0, len(bottom) + 1, max(1, len(bottom) // 3)))
        axis.set_xticks(ticks, [quantity(shares.edges[tick]) for tick in ticks])
    axis.set_xlim(-0.06, len(bottom))
    axis.set_ylim(0, 1)
    axis.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    panels.legend_below(axis)
    return figure


def _label(key: str) -> str:
    """Name of a model in the legend; clients' personal versions of a model are called so."""
    return f"personal models ({'+'.join(members(key))})" if is_personal(key) else key
