"""Whether the files of records still hold what a checkpoint goes on from, before anything of the job is dropped."""

from collections.abc import Mapping
from pathlib import Path

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.evaluations import StoredEvaluation
from fedscale_ext.metrics.lines import Mark, check_marked
from fedscale_ext.metrics.names import METRICS
from fedscale_ext.metrics.records import record_from_json
from fedscale_ext.util.reading import load_json


def check_return(log_dir: Path, marks: Mapping[str, Mark]) -> None:
    """Raise UserError where a job in ``log_dir`` cannot go back to ``marks`` (see ``Recorder.return_to``).

    Nothing is written: a job that is refused keeps its later checkpoints.
    """
    for name, mark in marks.items():
        check_marked(log_dir / name, mark)
    for record in _records(log_dir, int(marks[METRICS]["bytes"])) if METRICS in marks else []:
        if isinstance(record.evaluation, StoredEvaluation) and not record.evaluation.path.is_file():
            raise UserError(f"{record.evaluation.path} is missing; the job cannot continue without it")


def _records(log_dir: Path, size: int) -> list[RoundRecord]:
    """Return the records in the first bytes of metrics.jsonl; later lines, which are cut, may be damaged."""
    path = log_dir / METRICS
    with path.open("rb") as file:
        lines = file.read(size).splitlines()
    try:
        return [record_from_json(load_json(text), log_dir) for text in lines]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is not a metrics.jsonl of this version: {error!r}") from None
