"""A round record on TensorBoard: FedScale's tags as they are, and this extension's own."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.trackers.tags import DURATIONS, time_figures

if TYPE_CHECKING:  # importing it takes a second, and only the aggregator has a writer
    from torch.utils.tensorboard import SummaryWriter


def write_round(writer: "SummaryWriter", record: RoundRecord, figures: dict[str, float]) -> None:
    """Write one round, whose ``figures`` are those of :func:`fedscale_ext.metrics.trackers.tags.round_figures`.

    The x of FedScale's ``time_to`` tags is the virtual clock in minutes, of which TensorBoard keeps whole ones. These
    tags therefore also carry the virtual clock as their wall time: TensorBoard's "relative" axis shows it exactly. The
    histogram of client durations is in minutes, as its tag says; FedScale writes seconds there.
    """
    for tag, value in figures.items():
        writer.add_scalar(tag, value, record.round)
    for tag, value in time_figures(record, figures).items():
        writer.add_scalar(tag, value, record.virtual_clock_s / 60.0, walltime=record.virtual_clock_s)
    if record.client_durations_s:  # TensorBoard refuses a histogram of nothing
        writer.add_histogram(DURATIONS, np.array(record.client_durations_s) / 60.0, record.round)
    writer.flush()


def drop_events(log_dir: Path) -> None:
    """Delete the event files of an earlier run in this folder, before a writer is opened there.

    A resumed job writes its finished rounds again (:meth:`Recorder.return_to`). TensorBoard's own way,
    ``purge_step``, would compare the ``time_to`` tags, whose steps are minutes, with a round number.
    """
    for path in log_dir.glob("events.out.tfevents.*"):
        path.unlink(missing_ok=True)
