"""Words of the evaluations: an experiment is a table or figure, its arms are the rows, a run is a row with one seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.paper.job_keys import Keys
from evals.paper.orders import Order
from evals.paper.papers import SCALES
from fedscale_ext.core.errors import UserError


@dataclass(frozen=True)
class Arm:
    """A row of a table or a point of a figure: one job for each seed.

    Args:
        label: name of the row.
        keys: job_conf keys that the row adds to those of its data set and scale. None takes a key of these away. See
            :mod:`evals.paper.job_keys` for values that differ between data sets, and for models of other arms' jobs.
            A job that trains another arm's model has the devices of that arm's job.
        data: a data set of the paper, or one of settings.py.
        paper: published figures by column.
        x: value on the axis of a sweep.
        scales: the scales at which the row is run.
    """

    label: str
    keys: Keys = field(default_factory=dict)
    data: str = "femnist"
    paper: Mapping[str, float] = field(default_factory=dict)
    x: float | None = None
    scales: Sequence[str] = SCALES


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    Args:
        name: name of the script and of its tables.
        title: heading of the results.
        arms: the rows.
        columns: the figures shown, names of :func:`jobs.figures` or of what ``rows`` and ``derived`` add. Only
            these, accuracies and columns of ``orders`` are recorded: pictures and ``derived`` can read no others.
        plot: draws the runs into a file.
        note: what a reader has to know; it stands below the heading.
        shares: share of clients by arm, for a column of its own.
        rows: makes the rows shown from the finished jobs. Default: one row an arm.
        derived: makes further rows from the rows shown, recorded ones included.
        orders: claims that one arm is above another. The results have their differences, paired by seed.
        not_run: data sets without a job yet; the picture names them.
    """

    name: str
    title: str
    arms: Sequence[Arm]
    columns: Sequence[str] = ("accuracy %", "TMACs", "models", "participants / model")
    plot: Callable[["Experiment", Sequence["Run"], Path], None] | None = None
    note: str = ""
    shares: Callable[[Sequence["Run"]], Mapping[str, float]] | None = None
    rows: Callable[[Sequence["Run"]], list["Run"]] | None = None
    derived: Callable[[Sequence["Run"]], list["Run"]] | None = None
    orders: Sequence[Order] = ()
    not_run: Sequence[str] = ()


@dataclass(frozen=True)
class Run:
    """The job of an arm with one seed, or its recorded figures.

    Args:
        arm: the row.
        data: name of the data set, such as ``cifar10-h0.5``.
        seed: seed of the job.
        log_dir: log folder of the finished job. None: there is no job, or only its figures are known.
        figures: values by column.
        failed: why there is no result; empty where there is one.
        keys: the effective keys of the job.
        code: commit of the code that trained it.
        recorded: id of its line in runs.jsonl.
    """

    arm: Arm
    data: str
    seed: int
    log_dir: Path | None
    figures: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""
    keys: Mapping[str, Any] | None = None
    code: str | None = None
    recorded: str = ""

    @property
    def job(self) -> Path:
        """Log folder of the finished job; UserError where only its figures are known."""
        if self.log_dir is None:
            raise self.has_no_job()
        return self.log_dir

    def has_no_job(self) -> UserError:
        """Return the sentence for what needs the job itself."""
        return UserError(
            f"{self.arm.label} on {self.data}, seed {self.seed}, has recorded figures alone, and this needs the job "
            "itself: run the script with --plot FILE, which trains the jobs that are not there"
        )
