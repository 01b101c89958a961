"""``fedscale executor``: processes that work for a job which runs already."""

import os
import re
import sys
from typing import Annotated

import typer

from fedscale_ext.cli.command_group import CommandGroup
from fedscale_ext.core.errors import UserError, one_line

app = typer.Typer(
    cls=CommandGroup,
    help="Executors that join a running job, from any machine.\n\n"
    "Example: fedscale executor join 10.0.0.1:29500 --token-file token",
    no_args_is_help=True,
)


@app.callback()
def group() -> None:
    """Keep the name of the command, although it is the only one."""


@app.command()
def join(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the job's aggregator listens.")],
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="The job's token, in a file of mode 600.")
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option("--data-dir", metavar="DIR", help="The job's data on this machine.", show_default="the job's"),
    ] = None,
    gpu: Annotated[
        int | None, typer.Option("--gpu", metavar="N", min=0, help="Train on this GPU.", show_default="0, if any")
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(
            "--number",
            metavar="N",
            min=1,
            help="Ask for number N, and replace who had asked for it.",
            show_default="a new number",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="Time limit for the aggregator's first answer.")
    ] = 60.0,
    tls_ca: Annotated[str | None, typer.Option("--tls-ca", metavar="FILE", help="Like the key tls_ca.")] = None,
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="Like the key tls_executor_cert.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="Like the key tls_executor_key.")
    ] = None,
) -> None:
    """Join a running job as a further executor, and work for it until it ends.

    The job's settings come from its aggregator. Package, torch, NumPy and data must be those of the job.
    The result does not depend on which executors join or leave. After Ctrl-C other executors redo this one's work.
    `fedscale driver status JOB` prints the address and the token's file where the job was started.

    Exit code 0 if the job has ended, 2 if this process cannot join, 130 after Ctrl-C. 1 if the aggregator is lost,
    or another process has taken over this one's --number.

    Example: fedscale executor join 10.0.0.1:29500 --token-file token

    Example: fedscale executor join 10.0.0.1:29500 --token-file token --data-dir /data/femnist --gpu 1
    """
    host, port = parse_address(address)
    from fedscale_ext.driver.jobs import state_dir
    from fedscale_ext.entry.parent_pipe import exit_with_parent

    exit_with_parent()  # before the imports of seconds
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it tells of a refused connection stands in our sentence
    from fedscale_ext.entry import join as joining

    options = {"tls_ca": tls_ca, "tls_executor_cert": tls_cert, "tls_executor_key": tls_key}
    certificates = {key: path for key, path in options.items() if path is not None}
    logs = str(state_dir() / "executors")
    joined = joining.JoinOptions(host, port, logs, token_file, data_dir, gpu, number, certificates)
    try:
        joining.join(joined, wait, lambda sentence: print(sentence, flush=True))
    except ConnectionError as error:
        print(f"fedscale: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


def parse_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT, or [ADDRESS]:PORT in IPv6; UserError for anything else."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:\[\]/]+)):(\d{1,5})", address)
    if match is None or not 0 < int(match[3]) < 65536:
        raise UserError(f"{one_line(address, 100)!r} is no address: write HOST:PORT, as in 10.0.0.1:29500")
    return match[1] or match[2], int(match[3])
