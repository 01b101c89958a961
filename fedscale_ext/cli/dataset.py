"""``fedscale dataset``: get data into FedScale's layout, and look at it."""

import typer

app = typer.Typer(
    help="Get data into FedScale's layout, and check it.\n\nExample: fedscale dataset synthesize femnist data/femnist",
    no_args_is_help=True,
)
_FORMATS = ("npz", "leaf", "parquet", "folder")


@app.command("list")
def list_() -> None:
    """List the data sets known by name.

    Example: fedscale dataset list
    """
    from fedscale_ext.cli.tables import console, print_table
    from fedscale_ext.data.registry import KNOWN

    rows = [
        [entry.name, str(entry.classes), "x".join(map(str, entry.shape)), "natural" if entry.natural_clients
         else "by partition", entry.title] for entry in KNOWN
    ]  # fmt: skip
    print_table(console(), ["data set", "classes", "shape", "clients", "what it is"], rows)
