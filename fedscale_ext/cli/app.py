"""The tree of commands."""

from typing import Annotated, Any

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

_ORDER = ("driver", "executor", "methods", "models", "config", "dataset", "traces", "report", "predict", "export",
          "verify", "benchmark", "leaderboard")  # fmt: skip


class _Commands(CommandGroup):
    """The first level of commands, in the order of the help's panels."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names; Typer would list groups after single commands."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)


app = typer.Typer(
    cls=_Commands,
    name="fedscale",
    help="Federated learning in which clients train different models, on FedScale's runtime.\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted.\n\n"
    "Example: fedscale driver start splitmix --on digits",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # whose paragraphs fill the width
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(driver_commands.app, name="driver", rich_help_panel="Run")
app.add_typer(executor_commands.app, name="executor", rich_help_panel="Run")
app.add_typer(methods.app, name="methods", rich_help_panel="Choose")
app.command("models", rich_help_panel="Choose")(models.list_models)
app.add_typer(config.app, name="config", rich_help_panel="Choose")
dataset.app.command("download")(dataset_download.download)
app.add_typer(dataset.app, name="dataset", rich_help_panel="Data")
app.add_typer(traces.app, name="traces", rich_help_panel="Data")
app.command(rich_help_panel="Results")(report.report)
app.command(rich_help_panel="Results")(predict.predict)
app.command(rich_help_panel="Results")(export.export)
app.command(rich_help_panel="Results")(verify.verify)
app.command(rich_help_panel="Results")(benchmark.benchmark)
app.add_typer(leaderboard.app, name="leaderboard", rich_help_panel="Results")


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
