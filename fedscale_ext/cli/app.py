"""The tree of commands."""

from typing import Annotated

import typer

from fedscale_ext.cli import (
    benchmark,
    config,
    dataset,
    dataset_download,
    driver_commands,
    executor_commands,
    export,
    leaderboard,
    methods,
    models,
    predict,
    report,
    traces,
    verify,
)
from fedscale_ext.cli.command_group import CommandGroup
from fedscale_ext.util.package import VERSION

app = typer.Typer(
    cls=CommandGroup,
    name="fedscale",
    help="Federated learning in which clients train different models, on FedScale's runtime.\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted.\n\n"
    "Example: fedscale driver start splitmix --on digits",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # whose paragraphs fill the width
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(driver_commands.app, name="driver")
app.add_typer(executor_commands.app, name="executor")
app.add_typer(config.app, name="config")
dataset.app.command("download")(dataset_download.download)
app.add_typer(dataset.app, name="dataset")
app.add_typer(methods.app, name="methods")
app.command("models")(models.list_models)
app.command("data")(dataset.list_)
app.command()(benchmark.benchmark)
app.add_typer(leaderboard.app, name="leaderboard")
app.command()(report.report)
app.command()(export.export)
app.command()(predict.predict)
app.command()(verify.verify)
app.add_typer(traces.app, name="traces")


def _print_version(show_version: bool) -> None:
    if show_version:
        print(f"fedscale_ext {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What stands before a command."""
