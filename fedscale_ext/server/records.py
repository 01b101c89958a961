"""The files that a job writes while it runs and when it ends; the one place where results leave the server."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedscale_ext.core.types import RoundRecord, State
from fedscale_ext.metrics.job_folder.clients_file import write_clients
from fedscale_ext.metrics.job_folder.header import JobHeader
from fedscale_ext.metrics.job_folder.internal_states import drop_states, write_states
from fedscale_ext.metrics.job_folder.json_lines import Mark
from fedscale_ext.metrics.job_folder.model_files import save_models
from fedscale_ext.metrics.job_folder.recorder import Recorder
from fedscale_ext.metrics.job_folder.restarts import count_restarts
from fedscale_ext.metrics.job_folder.round_records import LAST
from fedscale_ext.metrics.summary import JobResult, summarise, write_summary
from fedscale_ext.metrics.trackers.wandb_run import WandbRun
from fedscale_ext.report.job.end_files import drop_end
from fedscale_ext.report.job.own_tables import text_tables
from fedscale_ext.report.job.tables import summary_table, write_markdown
from fedscale_ext.report.plots.growth import plot_growth
from fedscale_ext.report.plots.job_picture import plot_job
from fedscale_ext.tasks.kind import JobContext
from fedscale_ext.tasks.tested_tensors import drop_tested, keep_tested

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class JobRecords:
    """Writes rounds to metrics.jsonl and TensorBoard, and summary, models and plots at the end.

    Args:
        log_dir: The job's folder.
        context: The job's fixed parts.
        header: Description of the job, which becomes header.json.
        writer: TensorBoard's.
        wandb: The open run of Weights & Biases, or None.

    """

    def __init__(
        self,
        log_dir: Path,
        context: JobContext,
        header: JobHeader,
        writer: "SummaryWriter",
        wandb: WandbRun | None,
    ):
        self.header = header
        self._log_dir, self._job, self._writer, self._wandb = log_dir, context, writer, wandb
        internals = context.config.job.record_internals
        self._recorder = Recorder(log_dir, header=header, internals=internals, capacity=context.capacity)
        task = context.task
        write_clients(log_dir, context.capacity, context.population, task.train_sizes, task.client_names)

    def begin(self, after_round: int, marks: Mapping[str, Mark]) -> list[RoundRecord]:
        """Drop what an earlier run wrote after ``after_round`` (0: all of it), and return the records that stay.

        ``marks`` is how far the records reached by then. The files of an earlier end go first.
        """
        drop_end(self._log_dir)
        drop_tested(self._log_dir)
        drop_states(self._log_dir, after_round)
        return self._recorder.return_to(marks, self._writer)

    def round(self, record: RoundRecord, internals: dict[str, Any], states: Mapping[str, State]) -> None:
        """Write a finished round. Its clients' figures are on disk from then on, not in memory."""
        record.evaluation = self._recorder.round(record)
        self._recorder.internals(record.round, internals)
        if states:
            write_states(self._log_dir, record.round, states, self._job.config.job.checkpoint_keep)
        self._recorder.show(record, self._writer, self._wandb)

    def reached(self) -> dict[str, Mark]:
        """Return how far each file of records reaches, for a checkpoint."""
        return self._recorder.reached()

    def finish(
        self, result: JobResult, test_objective: Mapping[str, Any], emit: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        """Write the models, summary.md, summary.json and the plots; announce and return the summary.

        ``test_objective`` is what clients know of the hyperparameters in tests of their personal models.

        A job whose summary.json is there is done: only plots, which can be drawn again, come after it.
        """
        self._recorder.close()
        log_dir, pool = self._log_dir, self._job.pool
        restarts, names = count_restarts(log_dir), self._job.task.client_names
        summary = summarise(self.header, list(pool), result, restarts=restarts, client_names=names)
        save_models(log_dir, pool)
        keep_tested(log_dir, self._job.client_tensors_by_kind.values(), test_objective)
        write_markdown(log_dir, summary)
        write_summary(log_dir, summary)
        plot = plot_job(log_dir)
        plot_growth(log_dir, summary, result.records)
        emit(
            {
                "event": "summary",
                "summary": _without(summary, "config", "models", "by_class")
                | {
                    "clients": _without(summary["clients"], "names"),
                    "accuracy": _without(summary["accuracy"], "per_client", "served", "named"),
                    **{name: _without(summary[name], "per_client") for name in LAST},
                },
                "table": summary_table(summary),
                "tables": text_tables(summary),
                "files": {"plot": str(plot), "log_dir": str(log_dir)},
            }
        )
        return {**summary, "log_dir": str(log_dir)}


def _without(data: Mapping[str, Any] | None, *names: str) -> dict[str, Any]:
    """Return a copy of ``data`` without the entries ``names``."""
    return {name: value for name, value in (data or {}).items() if name not in names}
