"""What a job writes while it runs: header.json, metrics.jsonl, evaluations, internals.jsonl and TensorBoard."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.cost import Spent, spent
from fedscale_ext.metrics.job_folder.chain import START, job_digests, next_link
from fedscale_ext.metrics.job_folder.evaluations import StoredEvaluation, drop_evaluations, write_evaluation
from fedscale_ext.metrics.job_folder.file_names import HEADER, INTERNALS, METRICS
from fedscale_ext.metrics.job_folder.header import JobHeader
from fedscale_ext.metrics.job_folder.json_lines import GrowingFile, Mark, check_marked, cut
from fedscale_ext.metrics.job_folder.jsonable import line, plain
from fedscale_ext.metrics.job_folder.round_records import LAST, read_records, record_to_json
from fedscale_ext.metrics.trackers.tags import round_figures
from fedscale_ext.metrics.trackers.tensorboard import write_round
from fedscale_ext.util.atomic_files import write_atomic

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from fedscale_ext.metrics.trackers.wandb_run import WandbRun


def check_return(log_dir: Path, marks: Mapping[str, Mark]) -> None:
    """Raise UserError where a job in ``log_dir`` cannot go back to ``marks`` (see :meth:`Recorder.return_to`).

    Nothing is written: a job that is refused keeps its later checkpoints.
    """
    for name, mark in marks.items():
        check_marked(log_dir / name, mark)
    if METRICS in marks:
        _records_with_evaluations(log_dir, int(marks[METRICS]["bytes"]))


def _records_with_evaluations(log_dir: Path, size: int = -1) -> list[RoundRecord]:
    """Read all records, or those in the first ``size`` bytes; UserError where the file of an evaluation is missing."""
    records = read_records(log_dir / METRICS, size)
    for record in records:
        if isinstance(record.evaluation, StoredEvaluation) and not record.evaluation.path.is_file():
            raise UserError(f"{record.evaluation.path} is missing; the job cannot continue without it")
    return records


class Recorder:
    """Appends one JSON line per round to ``log_dir/metrics.jsonl``, flushed, so that a killed job keeps it.

    ``header`` describes the job and becomes header.json.
    ``internals`` tells whether internals.jsonl is written. ``capacity`` [clients] are the devices' capacities, for
    figures of device groups.

    Before the first round, a new job calls ``return_to({})``, and a resumed one ``return_to(marks)`` with the marks of
    :meth:`reached` at the checkpoint. In an empty folder, a recorder needs neither.
    """

    def __init__(
        self, log_dir: Path, *, header: JobHeader, internals: bool, capacity: np.ndarray | None = None
    ) -> None:
        self.log_dir = log_dir
        self._header = header
        self._capacity = capacity
        self._internals = internals
        self._files: dict[str, GrowingFile] = {}
        self.last_round = 0
        self.spent = Spent()
        self._chain: str | None = START  # of the last round; None where an earlier release wrote it without one
        write_atomic(log_dir / HEADER, json.dumps(plain(header), indent=2, ensure_ascii=False) + "\n")

    def round(self, record: RoundRecord) -> StoredEvaluation | None:
        """Write a finished round; rounds come in rising order. Returns its evaluation as the one on disk.

        Digests of the record, where it has some, are completed and chained to those of the round before.
        """
        if record.round <= self.last_round:
            raise ValueError(f"round {record.round} after round {self.last_round}: call return_to first")
        path = self.log_dir / METRICS
        if not self.last_round and path.is_file() and path.stat().st_size:
            raise ValueError(f"{path} has rounds: call return_to first")
        evaluation_json, stored = (
            (None, None) if record.evaluation is None else write_evaluation(self.log_dir, record.evaluation)
        )
        last = {}
        for kind in LAST:
            if (evaluation := getattr(record, kind)) is not None:
                last[kind], stored_evaluation = write_evaluation(self.log_dir, evaluation, kind)
                setattr(record, kind, stored_evaluation)
        record.digests = {} if self._chain is None or not record.digests else record.digests | job_digests(self._header)
        data = record_to_json(record, evaluation_json, last)
        if record.digests:
            assert self._chain is not None
            record.digests["chain"] = data["digests"]["chain"] = self._chain = next_link(self._chain, data)
        self._append(METRICS, data)
        self.last_round = record.round
        self.spent = self.spent.plus(record)
        return stored

    def internals(self, round: int, values: Mapping[str, Any]) -> None:
        """Write what a method's equations used and gave in this round; nothing unless enabled."""
        if self._internals and values:
            self._append(INTERNALS, {"round": round, **values} | {"round": round})

    def show(self, record: RoundRecord, writer: "SummaryWriter", run: "WandbRun | None" = None) -> None:
        """Show the round that was written last on TensorBoard, and on Weights & Biases where a run is open."""
        figures = round_figures(record, self.spent, self._capacity)
        write_round(writer, record, figures)
        if run is not None:
            run.round(record, figures)

    def reached(self) -> dict[str, Mark]:
        """Mark the end of each file of lines, for :meth:`return_to` after a resume; all lines are on the disk by
        then."""
        return {name: file.mark() for name, file in self._files.items()}

    def return_to(self, marks: Mapping[str, Mark], writer: "SummaryWriter | None" = None) -> list[RoundRecord]:
        """Forget what was written after ``marks`` (no marks: everything, unread) and return the records kept.

        UserError where a file is not what it was when it was marked. With a ``writer`` the kept rounds are also
        written to TensorBoard; clear its folder before it is opened
        (:func:`fedscale_ext.metrics.trackers.tensorboard.drop_events`).
        """
        self.close()
        for name in (METRICS, INTERNALS):
            cut(self.log_dir / name, marks.get(name))
        records = _records_with_evaluations(self.log_dir)
        drop_evaluations(self.log_dir, records[-1].round if records else 0)
        self._files = {name: GrowingFile(self.log_dir / name) for name in marks}
        self.last_round = records[-1].round if records else 0
        self.spent = spent(records)
        self._chain = records[-1].digests.get("chain") if records else START
        if writer is not None:
            total = Spent()
            for record in records:
                total = total.plus(record)
                write_round(writer, record, round_figures(record, total, self._capacity))
        return records

    def close(self) -> None:
        """Close the files; a later write opens them again."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _append(self, name: str, data: Mapping[str, Any]) -> None:
        text = line(data)  # first, so that a value that cannot be written leaves nothing
        if name not in self._files:
            self._files[name] = GrowingFile(self.log_dir / name)
        self._files[name].append(text)
