"""One picture of a job: accuracy, loss, who trained what, and how clients fare."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.job_folder.file_names import HEADER, METRICS
from fedscale_ext.metrics.job_folder.header import JobHeader
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.report.job.end_files import JOB_PLOT
from fedscale_ext.report.job.loading import NoRound
from fedscale_ext.report.plots.courses import macs_by_round, time_unit
from fedscale_ext.util.quantities import quantity

if TYPE_CHECKING:  # slow to import, and a job draws one picture, at its end
    from matplotlib.figure import Figure


def plot_job(log_dir: Path) -> Path:
    """Draw header.json and metrics.jsonl of a job, finished or running, as ``log_dir/plot.png``.

    Raises:
        NoRound: If the folder holds no round.
        UserError: If its header is missing or damaged.

    """
    from fedscale_ext.report.plots.figure_files import save_figure

    records = read_records(log_dir / METRICS)
    if not records:
        raise NoRound(log_dir)
    try:
        header = json.loads((log_dir / HEADER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(f"{log_dir / HEADER} is missing or damaged, so what the job was is not known") from None
    path = log_dir / JOB_PLOT
    save_figure(draw(header, records), path)
    return path


def draw(header: JobHeader, records: Sequence[RoundRecord]) -> "Figure":
    """The figure of a job: three views of accuracy above loss, participants per model and clients."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import FuncFormatter

    from fedscale_ext.report.plots import panels
    from fedscale_ext.report.plots.literal_figure import LiteralFigure

    figure = LiteralFigure(figsize=(14, 8), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    axes = figure.subplots(2, 3)
    _title(figure, header, records)
    tested = [record for record in records if record.evaluation is not None]
    spent_by = macs_by_round(records)
    unit, divisor = time_unit(records[-1].virtual_clock_s)
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


def _title(figure: "Figure", header: JobHeader, records: Sequence[RoundRecord]) -> None:
    from fedscale_ext.report.plots import panels

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
