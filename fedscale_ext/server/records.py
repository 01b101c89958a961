"""What a job writes down while it runs and when it ends; the one place where results leave the runtime."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedscale_ext.core.types import RoundRecord, State
from fedscale_ext.metrics.accuracy import accuracy
from fedscale_ext.metrics.clients import write_clients
from fedscale_ext.metrics.internal_states import drop_states, write_states
from fedscale_ext.metrics.lines import Mark
from fedscale_ext.metrics.models import save_models
from fedscale_ext.metrics.recorder import Recorder
from fedscale_ext.metrics.records import LAST
from fedscale_ext.metrics.restarts import count_restarts
from fedscale_ext.metrics.summary import floors, job_header, summarise, write_summary
from fedscale_ext.report.lineage import plot_growth
from fedscale_ext.report.own_tables import text_tables
from fedscale_ext.report.plots import plot_job
from fedscale_ext.report.tables import summary_table, write_markdown
from fedscale_ext.server import checkpoint
from fedscale_ext.server.divergence import end_notice
from fedscale_ext.server.resume import FOLDER

if TYPE_CHECKING:
    from fedscale_ext.server.aggregator import MultiModelAggregator


class JobRecords:
    """Round records to metrics.jsonl, TensorBoard and the driver; summary, models and plot at the end.

    ``first_notices`` are those that this start of the job gave before its first round.
    """

    def __init__(self, aggregator: "MultiModelAggregator", first_notices: Sequence[str]):
        self._job = job = aggregator
        config, data = job.config, job.data_info
        self.header = job_header(
            job_name=config.fedscale.job_name,
            method=config.job.method,
            params=dataclasses.asdict(job.params),
            config=config.echo(),
            seed=job.seed,
            data_name=data["name"],
            data_generated=data["generated"],
            data_digest=data["digest"],
            named_files=job.file_digests,
            population=job.population.source,
            num_clients=job.task.num_clients,
            public_data_used=job.public_data_used,
            floor=floors(job.majority_correct, job.most_frequent_correct, job.task.test_sizes),
            notices=first_notices,
        )
        self.recorder = Recorder(
            job.log_dir, header=self.header, internals=config.job.record_internals, capacity=job.capacity
        )
        write_clients(job.log_dir, job.capacity, job.population, job.task.train_sizes, job.task.client_names)

    def begin(self, after_round: int, marks: Mapping[str, Mark]) -> list[RoundRecord]:
        """Forget what an earlier run wrote after ``after_round`` (0: all of it), when the records reached as far
        as ``marks``; the records kept."""
        checkpoint.drop_after(self._job.log_dir / FOLDER, after_round)
        drop_states(self._job.log_dir, after_round)
        return self.recorder.return_to(marks, self._job.log_writer)

    def round(self, record: RoundRecord, internals: dict[str, Any], states: Mapping[str, State]) -> None:
        """Write and announce a finished round; its clients' figures are on disk from then on, not in memory."""
        record.evaluation = self.recorder.round(record)
        self.recorder.internals(record.round, internals)
        if states:
            write_states(self._job.log_dir, record.round, states, self._job.config.job.checkpoint_keep)
        self.recorder.show(record, self._job.log_writer, self._job.wandb)
        self._job.emit(
            {
                "event": "round",
                "round": record.round,
                "rounds": self._job.last_round(),
                "phase": self._job.phase(record.round),
                "participants": len(record.participants),
                "models": record.models,
                "assignments": record.assignments,
                "loss": record.train_loss if record.participants else None,
                "accuracy": accuracy(record.evaluation).mean if record.evaluation else None,
                "epsilon": record.privacy["epsilon"] if record.privacy else None,
                "virtual_clock_s": record.virtual_clock_s,
                "wall_s": record.wall_s,
            }
        )

    def finish(self, stopped: str | None) -> dict[str, Any]:
        """Write the models, summary.md, summary.json and the plot; announce and return the summary.

        A job whose summary.json is there is done: only pictures, which can be drawn again, come after it.
        """
        job = self._job
        self.recorder.close()
        if (sentence := end_notice(job.history, self.header["floor"], job.config)) is not None:
            job.notice(sentence)
        summary = summarise(
            self.header,
            job.history,
            list(job.pool),
            lineage=job.lineage(),
            results=job.results(),
            server_bytes=job.server_bytes(),
            stopped=stopped,
            privacy=job.privacy.summary() if job.privacy else None,
            refused_messages=job.refusals.counts(),
            notices=list(job.notices),
            resumed=job.resumed,
            restarts=count_restarts(job.log_dir),
            client_names=job.task.client_names,
        )
        save_models(job.log_dir, job.pool)
        write_markdown(job.log_dir, summary)
        write_summary(job.log_dir, summary)
        plot = plot_job(job.log_dir)
        plot_growth(job.log_dir, summary, job.history)
        job.emit(
            {
                "event": "summary",
                "summary": _without(summary, "config", "models")
                | {
                    "clients": _without(summary["clients"], "names"),
                    "accuracy": _without(summary["accuracy"], "per_client", "served", "named"),
                    **{name: _without(summary[name], "per_client") for name in LAST},
                },
                "table": summary_table(summary),
                "tables": text_tables(summary),
                "files": {"plot": str(plot), "log_dir": str(job.log_dir)},
            }
        )
        return {**summary, "log_dir": str(job.log_dir)}


def _without(data: Mapping[str, Any] | None, *names: str) -> dict[str, Any]:
    """A copy of what there is of ``data`` but for the entries ``names``."""
    return {name: value for name, value in (data or {}).items() if name not in names}
