"""The tree of commands."""

import typer

from fedscale_ext.cli import dataset, driver_commands, methods

app = typer.Typer(
    name="fedscale",
    help="Federated learning in which clients train different models, on FedScale's runtime.\n\n"
    "Example: fedscale driver start quickstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(driver_commands.app, name="driver")
app.add_typer(dataset.app, name="dataset")
app.command("methods")(methods.methods)
