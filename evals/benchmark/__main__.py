"""The benchmark: every method on the same clients with the same budget.

    python -m evals.benchmark --tasks har --rows HeteroFL FjORD --seeds 1 2 3
    python -m evals.benchmark --tasks har --method mymethod --set 'model=$large' --results my_results

The second line runs an installed method that is not in the table. README.md says which networks $large and others are.
Finished jobs are not run again; a stopped run goes on where it was. Results are lines of ``runs.jsonl``.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from evals.benchmark import run
from evals.benchmark.methods import ROWS, own_row
from evals.benchmark.row import end_with, train_row
from evals.benchmark.table import entries, table_lines
from evals.benchmark.tasks import BENCHMARK, PARTITION, TASKS
from evals.paper.engine import sources_folder
from evals.paper.runs import Records
from fedscale_ext.core.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the jobs; return the exit code: 1 if one failed, 2 if data are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW")
    parser.add_argument("--method", help="an installed method of your own, instead of rows")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="job_conf keys of --method")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: those of the task")
    parser.add_argument("--rates", nargs="+", type=float, default=list(run.RATES), help="rates to choose from")
    parser.add_argument(
        "--folder", type=Path, default=Path("data") / "benchmark", help="where data sets are imported to"
    )
    parser.add_argument("--sources", type=Path, default=sources_folder(), help="the npz files (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("logs") / "benchmark", help="where the jobs' folders are")
    parser.add_argument("--results", type=Path, default=BENCHMARK.folder, help="folder of runs.jsonl (%(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="rows at a time (%(default)s)")
    options = parser.parse_args(argv)
    try:
        rows = {label: ROWS[label] for label in options.rows}
        if options.method is not None:
            rows = {options.method: own_row(options.method, options.set)}
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    folders = {
        "data": options.folder.absolute(),
        "sources": options.sources.absolute(),
        "runs": options.runs.absolute(),
    }
    os.environ["FEDSCALE_EXT_STATE"] = str(folders["runs"] / "state")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers are as many as cores
    for name in options.tasks:  # once, before workers need it
        BENCHMARK.prepared(PARTITION.get(name, name), folders["data"], folders["sources"])
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        options.workers, mp_context=context, initializer=end_with, initargs=(os.getpid(),), max_tasks_per_child=1
    ) as pool:
        running = [
            pool.submit(
                train_row, name, label, row, options.seeds or TASKS[name].seeds, options.rates, folders, options.results
            )
            for name in options.tasks
            for label, row in rows.items()
        ]
        failures = [reason for one in as_completed(running) if (reason := one.result()) is not None]
    known = list(Records.load(options.results).runs.values())
    for name in options.tasks:
        print("\n".join([TASKS[name].title, *table_lines(entries(known, name))]))
    for reason in failures:
        print(f"no result: {reason}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
