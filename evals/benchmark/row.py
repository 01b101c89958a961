"""A job of a row: trained now, or known from its line; each job that is trained becomes a line."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from evals.benchmark import pooled, run
from evals.benchmark.methods import Row
from evals.benchmark.tasks import BENCHMARK, TASKS
from evals.paper import jobs
from evals.paper.measurement import Measurement
from evals.paper.runs import Records, Table, TableRow, locked
from fedscale_ext.core.errors import UserError
from fedscale_ext.util.commit import commit


class NoResult(Exception):
    """Why a job has no result; one sentence."""


class Outcome(NamedTuple):
    """Figures of a job, and whether they were recorded before and the job was not trained now."""

    figures: Mapping[str, float]
    recorded: bool = False


def train_job(
    name: str, label: str, row: Row, seed: int, rate: float, folders: Mapping[str, Path], results: Path
) -> Outcome:
    """Return the outcome of a job; its line is written into ``results``.

    Raises:
        NoResult: It could not be trained.

    """
    try:
        return _job(name, label, row, seed, rate, folders, results)
    except (jobs.Failed, UserError, SystemExit) as error:
        raise NoResult(f"{label} on {name}: {error}") from None


def _job(
    name: str, label: str, row: Row, seed: int, rate: float, folders: Mapping[str, Path], results: Path
) -> Outcome:
    """Outcome of a job, trained now or recorded before with the same keys and networks."""
    task = TASKS[name]
    planned = run.job_keys(name, task, row, seed, rate, folders)
    method = "pooled" if row.pooled else row.method
    keys = {"method": method, "learning_rate": rate, "row": label, "plan": run.plan(planned, row)}
    for each in recorded(results).values():
        if (each.data, each.seed, dict(each.keys)) == (name, seed, keys):
            return Outcome(dict(each.figures), recorded=True)
    if row.pooled:
        figures, code = pooled.figures(task, row.pooled, planned, seed, run.JOB), jobs.short_commit(commit())
    else:
        log_dir = run.trained(planned, name, seed, folders["runs"])
        figures, code = run.figures(log_dir, task), jobs.code_version(log_dir)
    measured = Measurement(name, "benchmark", seed, keys, figures, code=code)
    with locked(results):
        _record(Records.load(results), measured)
    return Outcome(figures)


def recorded(results: Path) -> dict[str, Measurement]:
    """Return the repository's lines, and those of ``results``, by id."""
    return {**Records.load(BENCHMARK.folder).runs, **Records.load(results).runs}


def _record(records: Records, measured: Measurement) -> None:
    """Add a line, and name it in its row of the task's table; lines of another plan leave the row."""
    name, label = measured.data, str(measured.keys["row"])
    added = records.add(measured)
    table = records.tables.get(name, Table("benchmark", "benchmark"))
    lines = {row.label: list(row.runs) for row in table.rows}
    plan = measured.keys["plan"]
    lines[label] = [each for each in lines.get(label, []) if records.runs[each].keys["plan"] == plan] + [added]
    rows = [TableRow(each, name, tuple(lines[each])) for each in lines]
    records.tables[name] = Table("benchmark", "benchmark", ("python -m evals.benchmark",), rows)
    records.save()
