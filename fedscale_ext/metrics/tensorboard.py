"""A round record on TensorBoard: FedScale's tags as they are, and this extension's own."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedscale_ext.metrics.accuracy import accuracy
from fedscale_ext.metrics.cost import Spent
from fedscale_ext.runtime.work import RoundRecord

if TYPE_CHECKING:  # importing it takes a second, and only the aggregator has a writer
    from torch.utils.tensorboard import SummaryWriter


def write_round(writer: "SummaryWriter", record: RoundRecord, spent: Spent) -> None:
    """Write one round; ``spent`` holds the sums up to and with this round.

    Tags of FedScale (aggregator.py, ``log_train_result`` and ``log_test_result``) keep their units:
    accuracy in [0, 1], averaged over samples; the x of the ``time_to`` tags is the virtual clock in
    minutes, of which TensorBoard keeps whole ones, so these tags also carry the virtual clock as their
    wall time: TensorBoard's "relative" axis shows it exactly. The histogram of client durations is in the
    minutes that its tag promises, where FedScale writes seconds.
    """
    step, minutes = record.round, record.virtual_clock_s / 60.0

    def at_time(tag: str, value: float) -> None:
        writer.add_scalar(tag, value, minutes, walltime=record.virtual_clock_s)

    if not math.isnan(record.train_loss):  # NaN where nobody trained
        writer.add_scalar("Train/round_to_loss", record.train_loss, step)
        at_time("Train/time_to_train_loss (min)", record.train_loss)
    if record.client_durations_s:  # TensorBoard refuses a histogram of nothing
        writer.add_histogram("Train/client_duration (min)", np.array(record.client_durations_s) / 60.0, step)
    writer.add_scalar("Train/round_duration (min)", record.round_duration_s / 60.0, step)
    writer.add_scalar("Train/models", record.models, step)
    for key, participants in record.assignments.items():
        writer.add_scalar(f"Train/participants/{key}", participants, step)
    writer.add_scalar("Cost/forward_macs", spent.forward_macs, step)
    writer.add_scalar("Cost/training_macs", spent.training_macs, step)
    writer.add_scalar("Cost/network_mb", spent.network_mb, step)
    if record.privacy is not None:
        for name in ("epsilon", "clip_norm"):
            writer.add_scalar(f"Privacy/{name}", record.privacy[name], step)
    if record.evaluation is not None:
        figures = accuracy(record.evaluation)
        writer.add_scalar("Test/round_to_loss", figures.loss, step)
        writer.add_scalar("Test/round_to_accuracy", figures.sample_weighted, step)
        at_time("Test/time_to_test_loss (min)", figures.loss)
        at_time("Test/time_to_test_accuracy (min)", figures.sample_weighted)
        writer.add_scalar("Test/client_accuracy_mean", figures.mean, step)
        writer.add_scalar("Test/client_accuracy_iqr", figures.iqr, step)
        writer.add_scalar("Test/client_accuracy_worst", figures.worst, step)
        for title, (top1, _loss) in record.evaluation.named.items():
            writer.add_scalar(f"Test/named/{title}", top1, step)
    writer.flush()


def drop_events(log_dir: Path) -> None:
    """Delete the event files of an earlier run in this folder, before a writer is opened there.

    A resumed job writes its kept rounds anew (:meth:`Recorder.tensorboard`): TensorBoard's own way,
    ``purge_step``, would judge the ``time_to`` tags, whose steps are minutes, by a round number.
    """
    for path in log_dir.glob("events.out.tfevents.*"):
        path.unlink(missing_ok=True)
