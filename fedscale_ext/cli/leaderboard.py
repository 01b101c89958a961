"""``fedscale leaderboard``: FedScale's published rows beside one's own, and entries for it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedscale_ext.cli import complete
from fedscale_ext.cli.checkout import harness, in_checkout
from fedscale_ext.cli.command_group import CommandGroup
from fedscale_ext.core.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedscale_ext.report.job.loading import LoadedJob
    from fedscale_ext.report.leaderboard.entry import Tuned

app = typer.Typer(cls=CommandGroup)
_FOLDER = Path("leaderboard")

Jobs = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...",
        help="Five jobs by name, by log folder, or by their common name in a sweep.",
        autocompletion=complete.jobs_and_arms,
    ),
]
Out = Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder of the entry.")]
TunedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tuned", metavar="KEY=A,B*", help="Values tried, * at the chosen one; or none. Default: the sweep's."
    ),
]
Commit = Annotated[str | None, typer.Option(metavar="ID", help="Commit that ran the jobs, if they do not name it.")]
Contact = Annotated[str, typer.Option(metavar="TEXT", help="Whom to ask about the entry.")]
External = Annotated[str, typer.Option("--external-data", metavar="TEXT", help="Data used beside the data set's.")]
Data = Annotated[str | None, typer.Option("--data-set", help="Show only this data set: openimage, femnist or speech.")]
Entries = Annotated[Path, typer.Option("--entries", metavar="DIR", help="Folder of your entries.")]


@app.callback(invoke_without_command=True)
def leaderboard(context: typer.Context, data_set: Data = None, entries: Entries = _FOLDER) -> None:
    """Show FedScale's leaderboard, with your entries and this machine's finished jobs among its rows.

    Accuracy is over all test samples, as in FedScale, with its standard deviation over seeds. In a checkout, without
    --data-set, the benchmark's best rows follow.

    Example: fedscale leaderboard --data-set femnist
    """
    if context.invoked_subcommand is None:
        from fedscale_ext.driver import jobs
        from fedscale_ext.driver.tables import console, print_table
        from fedscale_ext.report.leaderboard.board import TITLES, board

        if data_set not in (None, "openimage", "femnist", "speech"):
            raise UserError(f"the leaderboard has no data set {data_set!r}: it has openimage, femnist and speech")
        records = [jobs.read_intact(name) for name in jobs.names()]
        finished = [job.log_dir for job in records if job is not None and job.status == "finished"]
        rows, notes = board(data_set, entries, finished)
        out = console()
        print_table(out, TITLES, rows)
        if notes and out.is_terminal:
            out.print()
        for note in notes:
            print(note)
        if data_set is None and in_checkout():
            (titles, *best), left_out = harness("pages").best_methods()
            print("\nThe benchmark: the best method of each family (`fedscale benchmark` shows all)\n")
            print_table(out, titles, best)
            if left_out:
                print(f"\n{left_out}")


@app.command()
def submit(
    job: Jobs, tuned: TunedOption = None, out: Out = _FOLDER, commit: Commit = None, contact: Contact = "",
    external_data: External = "no",
) -> None:  # fmt: skip
    """Write a complete entry by FedScale's rules from five jobs, seeds 0 to 4.

    The entry is NAME.json, NAME.md, and NAME.yml, which gives the same jobs again. If something is
    missing, nothing is written: exit code 2, and one sentence names it.

    Example: fedscale leaderboard submit fedavg_femnist-sweep --tuned learning_rate=0.01,0.05*
    """
    from fedscale_ext.driver.naming import find_jobs
    from fedscale_ext.report.job.loading import load_job
    from fedscale_ext.report.leaderboard.entry import entry, lacks, lacks_of_tuned, write

    loaded = [load_job(folder) for folder in find_jobs(job).folders]
    known = _tuned(tuned) if tuned is not None else _of_sweep(loaded)
    missing = lacks(loaded, known, commit)
    missing += [text for one in known or () for text in lacks_of_tuned(loaded[0], one)]
    if missing:
        raise UserError(f"the entry is not complete: {'; '.join(missing)}")
    content = entry(loaded, known or (), commit=commit, contact=contact, external_data=external_data)
    paths = write(out, loaded, content)
    print(f"accuracy {content['test_accuracy_mean']:.4f} ± {content['test_accuracy_std']:.4f} over seeds 0 to 4")
    for path in paths:
        print(path)


def _tuned(texts: "Sequence[str]") -> "list[Tuned]":
    from fedscale_ext.report.leaderboard.entry import Tuned

    if list(texts) == ["none"]:
        return []
    tuned = []
    for text in texts:
        key, equals, values = text.partition("=")
        tried = [value.strip() for value in values.split(",")]
        chosen = [value for value in tried if value.endswith("*")]
        if not equals or not key or not all(value.rstrip("*") for value in tried) or len(chosen) != 1:
            raise UserError(f"--tuned {text}: write it as key=a,b* with a star behind the one that was chosen")
        tuned.append(Tuned(key.strip(), [value.removesuffix("*") for value in tried], chosen[0].removesuffix("*")))
    return tuned


def _of_sweep(loaded: "Sequence[LoadedJob]") -> "list[Tuned] | None":
    """What a sweep tried whose arm these jobs are; None where they are of no sweep with a grid, of several arms, or
    of runs outside the sweep."""
    from fedscale_ext.driver.sweeps import sweep_records
    from fedscale_ext.report.leaderboard.entry import Tuned

    sweep = sweep_records.of_job(loaded[0].name)
    if sweep is None or not sweep.grid:
        return None
    folders = [each.folder.resolve() for each in loaded]
    points = [point for point in sweep.points if (run := sweep.run_of(point.name)) and run.resolve() in folders]
    if len(points) != len(loaded) or len({point.arm for point in points}) != 1:
        return None
    chosen = dict(setting.split("=", 1) for setting in points[0].settings)
    return [Tuned(key, values, chosen[key]) for key, values in sweep.grid.items() if key in chosen]
