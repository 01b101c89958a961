"""One picture of a job: accuracy, loss, who trained what, and how clients fare."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.cost import Spent
from fedscale_ext.metrics.names import HEADER, METRICS
from fedscale_ext.metrics.records import read_records
from fedscale_ext.util.quantities import quantity

if TYPE_CHECKING:  # slow to import, and a job draws one picture, at its end
    from matplotlib.figure import Figure

PLOT = "plot.png"


def plot_job(log_dir: Path) -> Path:
    """Draw header.json and metrics.jsonl of a job, finished or running, as ``log_dir/plot.png``.

    UserError where the folder holds no round.
    """
    records = read_records(log_dir / METRICS)
    if not records:
        raise UserError(f"{log_dir} holds no {METRICS} with a round; give the log folder of a job that has trained")
    try:
        header = json.loads((log_dir / HEADER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(f"{log_dir / HEADER} is missing or damaged, so what the job was is not known") from None
    figure = draw(header, records)
    path, temporary = log_dir / PLOT, log_dir / f".{PLOT}.{os.getpid()}.tmp"
    figure.savefig(temporary, format="png", dpi=150)
    os.replace(temporary, path)
    return path


def draw(header: Mapping[str, Any], records: Sequence[RoundRecord]) -> "Figure":
    """The figure of a job: three views of accuracy above loss, participants per model and clients."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import FuncFormatter

    from fedscale_ext.report import panels
    from fedscale_ext.report.literal_figure import LiteralFigure

    figure = LiteralFigure(figsize=(14, 8), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    axes = figure.subplots(2, 3)
    _title(figure, header, records)
    tested = [record for record in records if record.evaluation is not None]
    spent_by = _training_macs(records)
    unit, divisor = _time_unit(records[-1].virtual_clock_s)
    panels.accuracy_over(axes[0, 0], tested, [record.round for record in tested], "round")
    times = [record.virtual_clock_s / divisor for record in tested]
    panels.accuracy_over(axes[0, 1], tested, times, "virtual time", f"virtual time ({unit})")
    macs = [spent_by[record.round] for record in tested]
    panels.accuracy_over(axes[0, 2], tested, macs, "computation", "MACs of all clients, forward and backward")
    axes[0, 2].xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    panels.loss(axes[1, 0], records, tested)
    panels.participants(axes[1, 1], records)
    panels.clients(axes[1, 2], tested)
    return figure


def _title(figure: "Figure", header: Mapping[str, Any], records: Sequence[RoundRecord]) -> None:
    from fedscale_ext.report import panels

    data = header["data"]
    kind = "generated data" if data["generated"] else "real data"
    figure.suptitle(
        f"{header['method']} on {data['name']} ({kind})",
        color=panels.INK, fontsize=16, fontweight="bold", x=0.012, ha="left",
    )  # fmt: skip
    took_part = np.mean([len(record.participants) for record in records])
    figure.supxlabel(
        f"{header['job_name']}  ·  {header['num_clients']:,} clients, {took_part:.0f} a round  ·  "
        f"round {records[-1].round}  ·  seed {header['seed']}  ·  devices {header['population']}",
        color=panels.MUTED, fontsize=9, x=0.012, ha="left",
    )  # fmt: skip


def _training_macs(records: Sequence[RoundRecord]) -> dict[int, float]:
    """Round -> MACs of all rounds up to it."""
    total, result = Spent(), {}
    for record in records:
        total = total.plus(record)
        result[record.round] = total.training_macs
    return result


def _time_unit(duration_s: float) -> tuple[str, float]:
    if duration_s >= 2 * 3600:
        return "h", 3600.0
    return ("min", 60.0) if duration_s >= 120 else ("s", 1.0)
