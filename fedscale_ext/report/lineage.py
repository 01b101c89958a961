"""How a job's models grew: a table for the terminal, and ``growth.png`` beside the job's picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedscale_ext.core.types import RoundRecord
from fedscale_ext.util.quantities import percent, quantity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOT = "growth.png"
TITLES = ("model", "parent", "round", "operation and cell", "MACs", "parameters", "MB", "clients served")


def lineage_rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """A row under :data:`TITLES` for each model of a job's summary; a dash for what its method does not tell.

    Shares are of all clients: members of ensembles serve the same ones.
    """
    total = summary["clients"]["total"]
    rows = []
    for model in summary["models"]:
        lineage = origin(model)
        cost, serves = model["cost"], model["serves"]
        rows.append(
            [
                model["key"],
                lineage.get("parent") or "–",
                str(lineage["birth"]) if "birth" in lineage else "–",
                ", ".join(lineage.get("steps", ())) or "–",
                quantity(cost["forward_macs"]),
                quantity(cost["parameters"]),
                f"{cost['bytes'] / 1e6:.3f}",
                f"{serves:,} ({percent(serves / total)})",
            ]
        )
    return rows


def plot_growth(log_dir: Path, summary: Mapping[str, Any], records: Sequence[RoundRecord]) -> Path | None:
    """Draw ``log_dir/growth.png`` of a job in which models were born; None where all were there from the start."""
    if not grew(summary) or not records:
        (log_dir / PLOT).unlink(missing_ok=True)  # of an earlier job of this name
        return None
    from fedscale_ext.report.figure_files import save_figure

    path = log_dir / PLOT
    save_figure(draw_growth(summary, records), path)
    return path


def draw_growth(summary: Mapping[str, Any], records: Sequence[RoundRecord]) -> "Figure":
    """Models per round above the life of each model, from its birth on, at its MACs."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from fedscale_ext.report import panels
    from fedscale_ext.report.literal_figure import LiteralFigure

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


def grew(summary: Mapping[str, Any]) -> bool:
    """Tell whether models were born while the job ran."""
    return any(origin(model).get("birth", 0) for model in summary["models"])


def lives(summary: Mapping[str, Any]) -> list[tuple[str, int, float, str, str]]:
    """Each model as :func:`fedscale_ext.report.panels.lives` draws it: key, birth, MACs, what made it, its size."""
    return [
        (
            model["key"],
            int(origin(model).get("birth", 0)),
            float(model["cost"]["forward_macs"]),
            ", ".join(origin(model).get("steps", ())) or "initial model",
            f"{quantity(model['cost']['forward_macs'])}MACs, {quantity(model['cost']['parameters'])} parameters, "
            f"serves {model['serves']:,}",
        )
        for model in summary["models"]
    ]


def origin(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parent, birth and steps of a model of a summary, as far as its method tells them."""
    return model["lineage"] if isinstance(model["lineage"], dict) else {}
