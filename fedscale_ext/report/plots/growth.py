"""``growth.png``, beside the picture of a job in which models were born: how many there were, and the life of each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedscale_ext.core.types import RoundRecord
from fedscale_ext.report.job.end_files import GROWTH_PLOT
from fedscale_ext.report.job.lineage import grew, lives

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_growth(log_dir: Path, summary: Mapping[str, Any], records: Sequence[RoundRecord]) -> Path | None:
    """Draw ``log_dir/growth.png`` of a job in which models were born; None where all were there from the start."""
    if not grew(summary) or not records:
        (log_dir / GROWTH_PLOT).unlink(missing_ok=True)  # of an earlier job of this name
        return None
    from fedscale_ext.report.plots.figure_files import save_figure

    path = log_dir / GROWTH_PLOT
    save_figure(draw_growth(summary, records), path)
    return path


def draw_growth(summary: Mapping[str, Any], records: Sequence[RoundRecord]) -> "Figure":
    """Models per round above the life of each model, from its birth on, at its MACs."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from fedscale_ext.report.plots import panels
    from fedscale_ext.report.plots.literal_figure import LiteralFigure

    height = max(7.0, 3.0 + 0.6 * len(summary["models"]))
    figure = LiteralFigure(figsize=(10, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    above, below = figure.subplots(2, 1, height_ratios=(2.1, height - 2.1), sharex=True)
    data = summary["data"]
    figure.suptitle(
        f"{summary['method']} on {data['name']} ({'generated' if data['generated'] else 'real'} data)",
        color=panels.INK, fontsize=14, fontweight="bold", x=0.012, ha="left",
    )  # fmt: skip
    panels.models_over(above, records)
    panels.lives(below, lives(summary), records)
    return figure
