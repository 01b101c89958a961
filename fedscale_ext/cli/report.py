"""``fedscale report``: jobs side by side, as a page to look at and a table in the terminal."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedscale_ext.cli import complete

if TYPE_CHECKING:  # slow to import, and help does not need it
    from fedscale_ext.report.job.loading import LoadedJob

Jobs = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...",
        help="Names of jobs or sweeps, or jobs' log folders; finished or not.",
        autocompletion=complete.jobs_and_arms,
    ),
]
Out = Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder of the report.")]
ByClass = Annotated[bool, typer.Option("--by-class", help="Show balanced accuracy, macro F1, and a table of classes.")]


def report(job: Jobs, out: Out = Path("report"), by_class: ByClass = False) -> None:
    """Compare jobs, or look at one: a page, plots and figures.

    Writes DIR/report.html (one file that needs no network), plots as PNG and SVG below DIR/plots, and all
    figures in DIR/figures.csv. Jobs that differ only in their seed become one row, with mean and standard
    deviation. The report leaves out jobs without a round, damaged ones and names without a job, and lists them.

    Exit code 0 if the report is written, 2 for bad input or if no name stands for a job.

    Example: fedscale report fedavg_digits splitmix_digits -o comparison

    Example: fedscale report fedavg_digits --by-class
    """
    from fedscale_ext.driver.naming import failures, find_existing_jobs
    from fedscale_ext.driver.tables import console, print_table
    from fedscale_ext.report.compare.cautions import cautions
    from fedscale_ext.report.compare.comparison_table import table_notes, table_rows, terminal_table
    from fedscale_ext.report.page.build import FIGURES, PLOTS, build

    named, unknown, damaged = find_existing_jobs(job)
    page, arms, left_out = build(named.folders, out, named.unbegun, failures(named.folders), by_class, _followed)
    screen = console()
    rows = table_rows(arms, by_class)
    print_table(screen, *terminal_table(arms, rows, by_class))
    of_records = [f"The report leaves out {word}: {error}." for word, error in damaged.items()]
    for sentence in filter(None, (_unknown(unknown), *of_records, left_out, *cautions(arms), *table_notes(rows))):
        typer.echo(f"note: {sentence}", err=True)
    if screen.is_terminal:
        screen.print()
    for what, path in (("report", page), ("plots", out / PLOTS), ("figures", out / FIGURES)):
        print(f"{what:<9}{path}")


def _unknown(words: list[str]) -> str | None:
    """The sentence that lists the names without a job, if there are any."""
    if not words:
        return None
    these = "these names" if len(words) > 1 else "this name"
    return f"The report leaves out {', '.join(words)}: no started job has {these}."


def _followed(jobs: "Sequence[LoadedJob]") -> "Iterable[LoadedJob]":
    """Yield the jobs whose plots are drawn one by one; a terminal shows how many are done."""
    from rich.progress import track

    from fedscale_ext.driver.tables import console

    screen = console(stderr=True)
    return track(jobs, "drawing jobs' plots", console=screen, transient=True, disable=not screen.is_terminal)
