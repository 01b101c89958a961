"""The benchmark: every method on the same clients with the same budget.

    python -m evals.benchmark --tasks har --rows HeteroFL FjORD --seeds 1 2 3

Finished jobs are not run again; a stopped run goes on where it was. Results are lines of ``runs.jsonl``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from evals.benchmark import run
from evals.benchmark.methods import ROWS
from evals.benchmark.tasks import BENCHMARK, TASKS
from evals.paper import jobs
from evals.paper.engine import sources_folder
from evals.paper.runs import Measurement, Records, Table, TableRow, locked
from fedscale_ext.core.errors import UserError

CHOICE = "choice of a learning rate"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the jobs; return the exit code: 1 if one failed, 2 if data are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: those of the task")
    parser.add_argument("--rates", nargs="+", type=float, default=list(run.RATES), help="rates to choose from")
    parser.add_argument(
        "--folder", type=Path, default=Path("data") / "benchmark", help="where data sets are imported to"
    )
    parser.add_argument("--sources", type=Path, default=sources_folder(), help="the npz files (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("logs") / "benchmark", help="where the jobs' folders are")
    parser.add_argument("--results", type=Path, default=BENCHMARK.folder, help="folder of runs.jsonl (%(default)s)")
    options = parser.parse_args(argv)
    folders = {
        "data": options.folder.absolute(),
        "sources": options.sources.absolute(),
        "runs": options.runs.absolute(),
    }
    failed = 0
    for label in options.rows:
        for name in options.tasks:
            try:
                _row(name, label, options.seeds or TASKS[name].seeds, options.rates, folders, options.results)
            except (jobs.Failed, UserError, SystemExit) as error:
                print(f"no result: {label} on {name}: {error}", file=sys.stderr, flush=True)
                failed += 1
    return 1 if failed else 0


def _row(
    name: str, label: str, seeds: Sequence[int], rates: Sequence[float], folders: dict[str, Path], results: Path
) -> None:
    """Choose the learning rate on a seed of its own, then train each seed with it."""
    tried = {rate: _job(name, label, max(TASKS[name].seeds) + 1, rate, folders, results) for rate in rates}
    best = max(tried, key=lambda rate: tried[rate]["own %"])
    for seed in seeds:
        found = _job(name, label, seed, best, folders, results)
        print(f"{name}: {label}, seed {seed}: {found['own %']:.2f} %", flush=True)


def _job(name: str, label: str, seed: int, rate: float, folders: dict[str, Path], results: Path) -> dict[str, float]:
    """Figures of a job, trained now or recorded before."""
    task, row = TASKS[name], ROWS[label]
    keys = {"method": row.method, "learning_rate": rate, "row": label}
    known = Records.load(results).runs.values()
    for each in known:
        if (each.data, each.seed, dict(each.keys)) == (name, seed, keys):
            return dict(each.figures)
    print(f"== {name}: {label}, seed {seed}, learning rate {rate}", flush=True)
    _, log_dir = run.trained(name, task, row, seed, rate, folders)
    found = run.figures(log_dir, task.budget_macs)
    measured = Measurement(name, "benchmark", seed, keys, found, code=jobs.code_version(log_dir))
    with locked(results):
        records = Records.load(results)
        added = records.add(measured)
        rows = records.tables.get(name, Table("benchmark", "benchmark")).rows
        ids = {(row.label): list(row.runs) for row in rows}
        ids.setdefault(label, []).append(added)
        shown = [TableRow(each, name, tuple(ids[each])) for each in ids]
        records.tables[name] = Table("benchmark", "benchmark", ("python -m evals.benchmark",), shown)
        records.save()
    return found


if __name__ == "__main__":
    raise SystemExit(main())
