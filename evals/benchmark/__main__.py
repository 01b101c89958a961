"""The benchmark: every method on the same clients with the same budget.

    python -m evals.benchmark --tasks har --rows HeteroFL FjORD --seeds 1 2 3
    python -m evals.benchmark --tasks har --method mymethod --set 'model=$large' --results my_results

The second line runs an installed method that is not in the table; `fedscale benchmark mymethod` does it, too. README.md
says which networks $large and others are. Finished jobs are not run again; a stopped run goes on where it was. Results
are lines of ``runs.jsonl``.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from evals.benchmark.methods import ROWS, Row, rows_of
from evals.benchmark.over_tasks import rows_over_tasks
from evals.benchmark.picture import picture
from evals.benchmark.row import recorded, train_job
from evals.benchmark.schedule import has_row, train_rows
from evals.benchmark.standing import entries
from evals.benchmark.table import accuracy_cells, short_cells
from evals.benchmark.tasks import BENCHMARK, JUDGING, PARTITION, TASKS
from evals.benchmark.workers import Workers
from evals.paper.engine import sources_folder
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver.tables import console, print_entries, print_table
from fedscale_ext.util.atomic_files import write_atomic

_MEANINGS = (
    ("own %", ["accuracy on clients' own test samples, mean over clients"]),
    ("worst tenth %", ["own % of the tenth of the clients with the lowest accuracy"]),
    ("on all %", ["accuracy of the same models on all clients' test samples"]),
    ("at 25 %", ["own % after a quarter of the budget"]),
    ("rank", ["mean over seeds and data sets; 1 is best"]),
    ("rate", ["learning rate"]),
    ("traffic", ["bytes as a multiple of those of FedAvg, weakest device's model; mean over data sets"]),
    ("(80 % beyond)", ["80 % of the clients train more than their devices afford"]),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the jobs; return the exit code: 1 if one failed, 2 if data or a method are missing, 130 if interrupted."""
    try:
        return benchmark(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: the benchmark was stopped; the same command continues it", file=sys.stderr)
        return 130


def benchmark(argv: Sequence[str] | None = None) -> int:
    """Run the jobs; return the exit code: 1 if one failed. UserError if data or a method are missing, or
    the results cannot have their folder."""
    options = _options(argv)
    results = options.results.absolute()
    for folder in (results, *results.parents):
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file: name a folder for the results")
    failures = [] if options.show else _train(options, results)
    for name in options.tasks:
        show(name, results)
    if set(JUDGING) <= set(options.tasks):
        show_over_tasks(results)
    print()
    print_entries(console(), ("column", "meaning"), _MEANINGS)
    for reason in failures:
        print(f"no result: {reason}", file=sys.stderr)
    return 1 if failures else 0


def show(task: str, results: Path) -> None:
    """Print a task's table of the repository's rows and those of ``results``; draw its picture into ``results``."""
    runs = list(recorded(results).values())
    rows = entries(runs, task)
    print(f"\n{TASKS[task].title}: {len(rows)} rows have results")
    if rows:
        titles, *cells = accuracy_cells(rows)
        print_table(console(), titles, cells)
    if rows and results != BENCHMARK.folder:
        results.mkdir(parents=True, exist_ok=True)
        write_atomic(results / f"{task}.svg", picture(runs, task) + "\n")
        print(f"picture: {results / f'{task}.svg'}")


def show_over_tasks(results: Path) -> None:
    """Print the table over the judging tasks of the repository's rows and those of ``results``."""
    print(f"\n{' and '.join(TASKS[task].short_title for task in JUDGING)}")
    titles, *cells = short_cells(rows_over_tasks(list(recorded(results).values())))
    print_table(console(), titles, cells)


def _train(options: argparse.Namespace, results: Path) -> list[str]:
    rows: Mapping[str, Row] = {label: ROWS[label] for label in options.rows}
    if options.method is not None:
        rows = rows_of(options.method, options.set)
    _check(options, rows)
    names = [PARTITION.get(name, name) for name in options.tasks]
    folders = {
        "data": options.folder.absolute(),
        "sources": options.sources.absolute(),
        "runs": options.runs.absolute(),
    }
    if missing := BENCHMARK.missing_of(names, folders["data"], folders["sources"]):
        raise UserError(missing)
    os.environ["FEDSCALE_EXT_STATE"] = str(folders["runs"] / "state")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers are as many as cores
    for name in names:  # once, before workers need it
        BENCHMARK.prepared(name, folders["data"], folders["sources"])
    seeds = {name: options.seeds or TASKS[name].seeds for name in options.tasks}
    rates = {name: options.rates or TASKS[name].rates for name in options.tasks}
    with Workers(options.workers) as pool:
        train = partial(train_job, folders=folders, results=results)
        return train_rows(rows, seeds, rates, train, pool, options.workers, partial(print, flush=True))


def _check(options: argparse.Namespace, rows: Mapping[str, Row]) -> None:
    """Raise UserError for seeds that a task does not have, and for a task that has none of the rows."""
    for name in options.tasks:
        task = TASKS[name]
        if strange := sorted(set(options.seeds or ()) - set(task.seeds)):
            raise UserError(
                f"seed {strange[0]} is none of {name}'s table: its seeds are 1 to {len(task.seeds)}, and the next one "
                "chooses learning rates"
            )
        if not any(has_row(task, label) for label in rows):
            raise UserError(f"{name} has no row of {', '.join(rows)}: its rows are {', '.join(task.rows)}")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW")
    parser.add_argument("--method", help="an installed method of your own, instead of rows")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="job_conf keys of --method")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: those of the task")
    parser.add_argument("--rates", nargs="+", type=float, help="rates to choose from; default: those of the task")
    parser.add_argument(
        "--folder", type=Path, default=Path("data") / "benchmark", help="where data sets are imported to"
    )
    parser.add_argument("--sources", type=Path, default=sources_folder(), help="the npz files (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("logs") / "benchmark", help="where the jobs' folders are")
    parser.add_argument("--results", type=Path, default=BENCHMARK.folder, help="folder of runs.jsonl (%(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="jobs at a time (%(default)s)")
    parser.add_argument("--show", action="store_true", help="show the tables without training")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
