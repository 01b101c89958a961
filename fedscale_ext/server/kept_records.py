"""Whether the files of records still hold what a checkpoint goes on from, before anything of the job is dropped."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.evaluations import StoredEvaluation
from fedscale_ext.metrics.lines import Mark, cut
from fedscale_ext.metrics.names import METRICS
from fedscale_ext.metrics.records import record_from_json
from fedscale_ext.util.reading import load_json


def check_kept(log_dir: Path, marks: Mapping[str, Mark]) -> None:
    """Raise UserError where a job in ``log_dir`` cannot go back to ``marks`` (see ``Recorder.return_to``).

    Nothing is written: a job that is refused keeps its later checkpoints.
    """
    for name, mark in marks.items():
        kept = _kept(log_dir / name, mark)
        if name == METRICS:
            for record in _records(kept, log_dir):
                if isinstance(record.evaluation, StoredEvaluation) and not record.evaluation.path.is_file():
                    raise UserError(f"{record.evaluation.path} is missing; the job cannot continue without it")


def _kept(path: Path, mark: Mark) -> bytes:
    """Return what a file held when it was marked; UserError where it does not begin with that."""
    try:
        with path.open("rb") as file:
            content = file.read(int(mark["bytes"]))
    except OSError:
        content = b""
    if hashlib.sha256(content).hexdigest() != mark["sha256"]:
        cut(path, mark)  # which refuses such a file and says why
    return content


def _records(content: bytes, log_dir: Path) -> list[RoundRecord]:
    """Return the records of whole lines of a metrics.jsonl; later lines, which are cut, may be damaged."""
    try:
        return [record_from_json(load_json(text), log_dir) for text in content.splitlines()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{log_dir / METRICS} is not a metrics.jsonl of this version: {error!r}") from None
