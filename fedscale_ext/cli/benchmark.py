"""``fedscale benchmark``: a method on the same clients, devices and budget as all others, and its place among them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedscale_ext.cli import complete
from fedscale_ext.cli.checkout import harness
from fedscale_ext.core.errors import UserError, did_you_mean


def benchmark(
    method: Annotated[
        str | None,
        typer.Argument(help="An installed method, also of a plug-in.", autocompletion=complete.methods),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            metavar="TASK",
            help="A task of the benchmark; repeatable.",
            show_default="har; without a method: har and mnist",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", help="Seeds: 1 to N; only har has more than 3.", min=1, max=5)
    ] = 3,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Key of the job; evals/benchmark/README.md explains $large and others."
        ),
    ] = None,
    rates: Annotated[
        list[float] | None,
        typer.Option(
            "--rate",
            metavar="R",
            help="Learning rate to try; repeatable. A single one is not tried first.",
            show_default="those of the task",
        ),
    ] = None,
    sources: Annotated[
        Path | None,
        typer.Option(
            "--sources",
            metavar="DIR",
            help="Folder of the tasks' npz files; evals/data.md says what they are.",
            show_default="$FEDSCALE_EXT_SHARED_DATA, else shared/data beside the checkout",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Folder of your rows and of the pictures.")
    ] = Path("benchmark"),
    workers: Annotated[
        int | None,
        typer.Option("--at-once", metavar="N", help="Jobs at a time.", show_default="one per core", min=1),
    ] = None,
) -> None:
    """Train a method in the benchmark and show its row among the others.

    All methods have the same clients, devices and public samples, and an equal budget of training MACs. The method
    takes the best of the task's learning rates, tried on a separate seed. A shipped method runs with the settings of
    its row; with --set it becomes a row of yours. The same command continues a stopped one: finished jobs do not run
    again, nor do recorded ones.

    Without a method, the command shows the recorded rows of each task and a table over the tasks.

    Example: fedscale benchmark

    Example: fedscale benchmark mymethod --tasks har --set 'model=$large'
    """
    known = list(harness("tasks").TASKS)
    for task in tasks or ():
        if task not in known:
            raise UserError(f"the benchmark has no task {task!r}{did_you_mean(task, known)}: it has {', '.join(known)}")
    usual = ["har"] if method else harness("tasks").JUDGING
    words = ["--tasks", *(tasks or usual), "--results", str(out)]
    if method is None:
        if settings or rates:
            raise UserError("--set and --rate belong to a method: name it first")
        words += ["--show"]
    else:
        words += ["--method", method, "--seeds", *map(str, range(1, seeds + 1))]
        words += [f"--set={setting}" for setting in settings or ()]
        words += ["--rates", *map(str, rates)] if rates else []
    words += ["--sources", str(sources)] if sources else []
    words += ["--workers", str(workers)] if workers else []
    try:
        code = harness("__main__").benchmark(words)
    except KeyboardInterrupt:
        print("fedscale: the benchmark was stopped; the same command continues it", file=sys.stderr)
        raise
    if code:
        raise typer.Exit(code)
