"""What a job's search of paths found: accuracy against MACs, the Pareto front and the chosen model of each tier."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import PercentFormatter
from pydantic import TypeAdapter

from fedscale_ext.core.errors import UserError
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.report.job.schema import SearchedTier
from fedscale_ext.report.plots import panels
from fedscale_ext.report.plots.comparison_plots import WIDTH, figure_of
from fedscale_ext.util.validation import faults_raise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TIERS = TypeAdapter(list[SearchedTier])
TITLE = "Paths that the search judged"


@dataclass(frozen=True)
class TierSearch:
    """Paths that the search of a tier judged.

    ``tier`` counts from 1. All arrays hold MACs and score. ``judged`` [n, 2] are the paths with a score. ``front`` [n,
    2] is their Pareto front, cheapest first. ``chosen`` [2] is the chosen path.
    """

    tier: int
    judged: np.ndarray
    front: np.ndarray
    chosen: np.ndarray


def tier_searches(job: LoadedJob) -> list[TierSearch]:
    """Searches of all tiers that have ended; empty for jobs that search no paths. UserError where a summary is
    damaged."""
    rows = (job.summary.get("results") or {}).get("tiers") or []
    if not any(isinstance(each, dict) and each.get("search") for each in rows):
        return []
    with faults_raise(UserError, f"{job.folder} is damaged, or of another version: ", "results.tiers"):
        tiers = _TIERS.validate_python(rows)
    return [
        TierSearch(
            one.tier,
            np.array([pair for pair in one.search.scores if None not in pair], dtype=np.float64).reshape(-1, 2),
            np.array(one.search.front, dtype=np.float64).reshape(-1, 2),
            np.array([one.search.macs, one.search.score]),
        )
        for one in tiers
        if one.search is not None
    ]


def drawn(job: LoadedJob, searches: Sequence[TierSearch]) -> "Figure":
    """Each tier in a colour: judged paths as dots, the front as a line, the chosen one as a star."""
    by_loss = job.header["params"].get("score") == "loss"
    sign = -1.0 if by_loss else 1.0
    figure, axis = figure_of(WIDTH, 3.4)
    panels.prepare(axis, TITLE, "MMACs per sample")
    for each in searches:
        color = panels.MODELS[(each.tier - 1) % len(panels.MODELS)]
        axis.plot(each.judged[:, 0] / 1e6, sign * each.judged[:, 1], "o", markersize=2.5, alpha=0.35, color=color)
        axis.plot(each.front[:, 0] / 1e6, sign * each.front[:, 1], "-", linewidth=1.4, color=color,
                  label=f"tier {each.tier}")  # fmt: skip
        axis.plot(each.chosen[0] / 1e6, sign * each.chosen[1], "*", markersize=13, color=color,
                  markeredgecolor=panels.INK, markeredgewidth=0.8)  # fmt: skip
    if by_loss:
        axis.invert_yaxis()
    else:
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.set_ylabel("validation loss" if by_loss else "validation accuracy", color=panels.MUTED, fontsize=9)
    axis.plot([], [], "*", color=panels.MUTED, markersize=9, label="chosen")
    panels.legend(axis)
    return figure
