"""Whether the files of records still hold what a checkpoint goes on from, before anything of the job is dropped."""

from collections.abc import Mapping
from pathlib import Path

from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.evaluations import StoredEvaluation
from fedscale_ext.metrics.lines import Mark, check_marked
from fedscale_ext.metrics.names import METRICS
from fedscale_ext.metrics.records import read_records


def check_return(log_dir: Path, marks: Mapping[str, Mark]) -> None:
    """Raise UserError where a job in ``log_dir`` cannot go back to ``marks`` (see ``Recorder.return_to``).

    Nothing is written: a job that is refused keeps its later checkpoints.
    """
    for name, mark in marks.items():
        check_marked(log_dir / name, mark)
    for record in read_records(log_dir / METRICS, int(marks[METRICS]["bytes"])) if METRICS in marks else []:
        if isinstance(record.evaluation, StoredEvaluation) and not record.evaluation.path.is_file():
            raise UserError(f"{record.evaluation.path} is missing; the job cannot continue without it")
