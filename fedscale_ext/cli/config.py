"""``fedscale config``: the presets of methods and data sets, and the configurations that they compose."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedscale_ext.cli import complete
from fedscale_ext.cli.command_group import CommandGroup
from fedscale_ext.core.errors import UserError

app = typer.Typer(
    cls=CommandGroup,
    help="Presets: a method and the data that it trains on.\n\nExample: fedscale config show heterofl --on digits",
    no_args_is_help=True,
)


Kind = Literal["methods", "data"]


@app.command("list")
def list_presets(
    kind: Annotated[
        Kind | None, typer.Argument(metavar="[methods|data]", help="One kind of presets.", show_default="both")
    ] = None,
) -> None:
    """List the presets: methods with the data nearest to their papers, data sets with the command that gets them.

    Methods train on any data set that their models can read: fedscale driver start METHOD --on DATA. If one needs
    another key there, a sentence names it. The repository's page evals/data.md says what the npz and JSON files of
    small data sets are, and how to make them.

    Example: fedscale config list data
    """
    from fedscale_ext.config.presets import data_presets, method_preset, setting_title, startable_methods
    from fedscale_ext.driver.tables import console, print_entries, print_table

    out = console()
    if kind != "data":
        methods = {name: method_preset(name) for name in startable_methods()}
        print_table(out, ["method", "what it is", "data nearest to its paper"],
                    [[name, preset.title, preset.data] for name, preset in methods.items()])  # fmt: skip
    if kind is None:
        out.print()
    if kind != "methods":
        presets = data_presets().items()
        entries = [(name, [preset.title, setting_title(preset), preset.get[0]]) for name, preset in presets]
        print_entries(out, ("data", "what it is, setting, how to get it"), entries)


@app.command()
def show(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD", help="One of `fedscale config list methods`.", autocompletion=complete.preset_methods
        ),
    ],
    on: Annotated[
        str | None,
        typer.Option(
            "--on", metavar="DATA", help="One of `fedscale config list data`.", autocompletion=complete.data_presets
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="New file to write.", show_default="print it")
    ] = None,
) -> None:
    """Write the whole configuration of a method on a data set, which FedScale's own driver runs, too.

    Example: fedscale config show heterofl --on digits -o heterofl.yml
    """
    from fedscale_ext.config.presets import ask_for_data, render

    if on is None:
        raise UserError(ask_for_data(method))
    text = render(method, on)
    if out is None:
        print(text, end="")
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{out} exists; name a new file") from None
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from None
    print(f"wrote {out}; start it with: fedscale driver start {shlex.quote(str(out))}")
