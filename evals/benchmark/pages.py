"""Writes the benchmark's page and pictures, and its short tables in two READMEs, from what is recorded.

python -m evals.benchmark.pages
"""

from collections.abc import Sequence
from pathlib import Path

from evals.benchmark.methods import ROWS
from evals.benchmark.over_tasks import RowOverTasks, best_of_families, rows_over_tasks
from evals.benchmark.picture import picture, picture_over_tasks
from evals.benchmark.standing import entries
from evals.benchmark.table import (
    accuracy_cells,
    better_but_beyond,
    chance_sentences,
    cost_cells,
    difference_cells,
    markdown,
    short_cells,
)
from evals.benchmark.tasks import BENCHMARK, TASKS
from evals.paper.blocks import with_block
from evals.paper.measurement import Measurement
from evals.paper.runs import Records
from fedscale_ext.util.atomic_files import write_atomic

FOLDER = BENCHMARK.folder
_COMMAND = "python -m evals.benchmark.pages"
_HEAD = """\
# Benchmark

Every method on the same clients, with the same budget of training. `python -m evals.benchmark.pages` writes this page
from [runs.jsonl](runs.jsonl). [README](README.md) says what the tasks are. Rows are sorted by own %.

- **own %**: accuracy on a client's own test samples, mean over clients; mean ± standard deviation over seeds.
- **on all %**: the same models on all clients' test samples.
- **worst tenth %**: own % of the tenth of the clients with the lowest accuracy.
- **at 25 %, at 50 %**: own % at the first test after a quarter and half of the budget.
- **rank**: mean over seeds, with Student's 95 % interval; 1 is best. It takes three seeds, if any method has them.
  Only tasks that can judge methods have ranks.
- **rate**: the learning rate; on UCI HAR the best of three, on MNIST of two.
- **(80 % beyond)**: 80 % of the clients train more than their devices afford.
- **pooled**: one model, trained on all clients' samples together with the same MACs.
- **TMACs**: 10^12 multiply-accumulates, of all clients' training.
- **MB up, MB down**: what all clients sent and received.
- **device MB**: memory of a training step of the largest model that a client has.
- **virtual s**: seconds that the clients' devices would take.
- **server TMACs, server s**: the server's work (–: not counted in older jobs), and its seconds on the run's machine.
"""
_DIFFERENCES = """## Above FedAvg with the weakest device's model

Points of accuracy on clients' own test samples: mean over seeds of the differences with the same seed ± half of
Student's 95 % interval. **Bold**: the interval does not contain zero; the difference is *beyond chance*.
"""


def results_page(runs: Sequence[Measurement]) -> str:
    """Return the text of ``results.md``."""
    lines = _HEAD.split("\n")
    over_tasks = rows_over_tasks(runs)
    if any(row.baseline for row in over_tasks):
        lines += [*_DIFFERENCES.split("\n"), chance_sentences(over_tasks), ""]
        lines += [*markdown(difference_cells(over_tasks)), ""]
    for name, task in TASKS.items():
        rows = entries(runs, name)
        if rows:
            lines += [f"## {task.title}", "", f"{len(rows)} of {len(task.rows or ROWS)} rows have results so far.", ""]
            lines += [task.about, ""] if task.about else []
            lines += [f"![Accuracy of each method on {task.title}]({name}.svg)", ""]
            lines += [*markdown(accuracy_cells(rows)), *(["", task.remarks] if task.remarks else [])]
            lines += ["", f"What it cost on {task.title}:", ""]
            lines += [*markdown(cost_cells(rows)), ""]
    return "\n".join(lines)


def pages(runs: Sequence[Measurement]) -> dict[Path, str]:
    """Return all files that this script writes, as they are to be."""
    rows = rows_over_tasks(runs)
    evals, root = FOLDER.parent / "README.md", FOLDER.parents[1] / "README.md"
    texts = {
        FOLDER / "results.md": results_page(runs),
        FOLDER / "methods.svg": picture_over_tasks(rows) + "\n",
        FOLDER / "families.svg": picture_over_tasks(best_of_families(rows)) + "\n",
        evals: with_block(evals.read_text(encoding="utf-8"), "benchmark", _COMMAND, markdown(short_cells(rows))),
        root: with_block(root.read_text(encoding="utf-8"), "benchmark", _COMMAND, _best_methods_lines(rows)),
    }
    return texts | {FOLDER / f"{task}.svg": picture(runs, task) + "\n" for task in TASKS if entries(runs, task)}


def best_methods(rows: Sequence[RowOverTasks] | None = None) -> tuple[list[list[str]], str]:
    """Return the best row of each family, of those whose devices afford what clients train.

    Args:
        rows: All rows, by default those of all recorded jobs.

    Returns:
        A table, its headings first, and a sentence about better rows that it leaves out, or "".

    """
    known = rows_over_tasks(list(Records.load(FOLDER).runs.values())) if rows is None else rows
    return short_cells(best_of_families(known)), better_but_beyond(known)


def _best_methods_lines(rows: Sequence[RowOverTasks]) -> list[str]:
    cells, left_out = best_methods(rows)
    return [*markdown(cells), *(["", left_out] if left_out else [])]


def main() -> None:
    """Write the files that changed, and name them."""
    for path, text in pages(list(Records.load(FOLDER).runs.values())).items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_atomic(path, text)
            print(f"wrote {path.relative_to(FOLDER.parents[1])}")


if __name__ == "__main__":
    main()
