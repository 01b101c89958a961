"""``fedscale traces``: look at traces of devices, write them in safe formats, and draw some."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedscale_ext.cli.command_group import CommandGroup
from fedscale_ext.core.errors import UserError, listed

if TYPE_CHECKING:
    from fedscale_ext.population.traces.columns import AvailabilityTrace, CapacityTrace
    from fedscale_ext.population.traces.statistics import Spread

app = typer.Typer(
    cls=CommandGroup,
    help="Inspect device traces, convert them to safe formats, and draw new ones.\n\n"
    "Example: fedscale traces synthesize 1000 -o data/traces",
    no_args_is_help=True,
)
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
_MOST = 20_000_000  # devices
_BAR = 44  # characters of the longest bar: a line fits 80 columns


Ending = Literal["npz", "csv"]


@app.command()
def inspect(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="A trace of capacity, one of availability, or one of each."),
    ],
    plot: Annotated[
        Path | None, typer.Option("--plot", "-p", help="Also draw a picture: FILE.png, .svg or .pdf.")
    ] = None,
    force: Force = False,
) -> None:
    """Show the content of traces: quantiles over devices, histograms, clients online by hour.

    FedScale's pickles (client_device_capacity, client_behave_trace) are read without running them; csv and npz, too.

    Example: fedscale traces inspect client_device_capacity client_behave_trace --plot traces.png
    """
    from fedscale_ext.population.traces.columns import AvailabilityTrace, CapacityTrace
    from fedscale_ext.population.traces.reading import read_trace
    from fedscale_ext.report.plots.trace_plots import check_plot, plot_traces

    if plot is not None:
        check_plot(plot, force)
    if len(files) > 2:
        raise UserError("name one trace of capacity, one of availability, or one of each: not more files")
    capacity: CapacityTrace | None = None
    availability: AvailabilityTrace | None = None
    for path in files:
        trace = read_trace(path)
        if (isinstance(trace, CapacityTrace) and capacity) or (isinstance(trace, AvailabilityTrace) and availability):
            raise UserError(f"{files[0]} and {path} are traces of one kind: look at them one after the other")
        if isinstance(trace, CapacityTrace):
            capacity, capacity_path = trace, path
        else:
            availability, availability_path = trace, path
    if plot is not None:
        plot_traces(plot, capacity, availability)
    if capacity is not None:
        _show_capacity(capacity_path, capacity)
    if availability is not None:
        print(end="" if capacity is None else "\n")
        _show_availability(availability_path, availability)
    if plot is not None:
        print(f"\npicture: {plot}")


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A trace: FedScale's pickle, csv or npz.")],
    target: Annotated[Path, typer.Argument(help="File to write: .npz or .csv.")],
    force: Force = False,
) -> None:
    """Write a trace as npz or csv, which cannot hide code; its numbers stay the same to the last bit.

    Pickles may hold dicts, lists, numbers and text; a pickle with anything else is refused.

    Example: fedscale traces convert client_behave_trace data/traces/availability.npz
    """
    from fedscale_ext.population.traces.reading import read_trace
    from fedscale_ext.population.traces.writing import write_trace

    if target.resolve() == source.resolve():
        raise UserError(f"{target} is the trace itself: name another file to write")
    trace = read_trace(source)
    write_trace(target, trace, force=force)
    print(f"{target}: {_what(trace)}, {target.stat().st_size:,} bytes")
    print(f"use it with: --set {_key(trace)}={shlex.quote(str(target))}")


@app.command()
def synthesize(
    devices: Annotated[int, typer.Argument(metavar="N", help="Devices to draw, each also a client's availability.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder to write.")] = Path("data/traces"),
    seed: Annotated[int, typer.Option(help="Seed: the same one gives the same devices.")] = 1,
    format_: Annotated[Ending, typer.Option("--format", help="Format of both files.")] = "npz",
    force: Force = False,
) -> None:
    """Draw a population of N devices from FedScale's published marginals: capacity.npz and availability.npz.

    They are marked as resampled, and jobs that use them say so.

    Example: fedscale traces synthesize 1000 --seed 7 -o data/traces
    """
    from fedscale_ext.population.traces.resampling import resample_availability, resample_capacity
    from fedscale_ext.population.traces.writing import write_trace

    if not 1 <= devices <= _MOST:
        raise UserError(f"{devices} devices cannot be drawn: name a number from 1 to {_MOST:,}")
    if seed < 0:
        raise UserError(f"the seed must be 0 or above, not {seed}")
    paths = [out / f"{name}.{format_}" for name in ("capacity", "availability")]
    for path in paths:
        if path.exists() and not force:
            raise UserError(f"{path} exists: name another folder or add --force")
    traces: list[CapacityTrace | AvailabilityTrace] = [
        resample_capacity(devices, seed),
        resample_availability(devices, seed),
    ]
    settings = []
    for path, trace in zip(paths, traces, strict=True):
        write_trace(path, trace, force=force)
        print(f"{path}: {_what(trace)}, {path.stat().st_size:,} bytes")
        settings.append(f"--set {_key(trace)}={shlex.quote(str(path))}")
    print(f"use them with: {' '.join(settings)}")


def _what(trace: "CapacityTrace | AvailabilityTrace") -> str:
    from fedscale_ext.population.traces.columns import CapacityTrace
    from fedscale_ext.population.traces.statistics import reached

    drawn = "resampled from published marginals" if trace.resampled else "as traced"
    if trace.client_id.dtype.kind == "U":
        drawn += f", for {listed(trace.client_id.tolist(), 3)}"
    if isinstance(trace, CapacityTrace):
        return f"capacity of {len(trace):,} devices, {drawn}"
    return f"availability of {len(trace):,} clients in {int(reached(trace).sum()):,} intervals, {drawn}"


def _key(trace: "CapacityTrace | AvailabilityTrace") -> str:
    from fedscale_ext.population.traces.columns import CapacityTrace

    return "device_conf_file" if isinstance(trace, CapacityTrace) else "device_avail_file"


def _show_capacity(path: Path, trace: "CapacityTrace") -> None:
    from fedscale_ext.population.traces.notes import capacity_note
    from fedscale_ext.population.traces.statistics import capacity_spreads, histogram

    print(f"{path}: {_what(trace)}")
    print(f"slowest to fastest: {trace.computation_ms.max() / trace.computation_ms.min():.3g} times in computation, "
          f"{trace.communication_kbps.max() / trace.communication_kbps.min():.3g} in communication\n")  # fmt: skip
    _print_note(capacity_note(trace, str(path)))
    _show_spreads("devices at", capacity_spreads(trace))
    for title, values, log in (
        ("ms per sample", trace.computation_ms, False), ("kbit/s", trace.communication_kbps, True),
    ):  # fmt: skip
        counts, edges = histogram(values, 10, log=log)
        rows = [
            (f"{_figure(low)} – {_figure(high)}", int(count), f"{count:,}")
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
        _show_bars(f"devices by {title}", rows)


def _show_availability(path: Path, trace: "AvailabilityTrace") -> None:
    from fedscale_ext.data.wording import counted
    from fedscale_ext.population.traces.notes import availability_note
    from fedscale_ext.population.traces.statistics import online, online_spreads

    presence = online(trace)
    print(f"{path}: {_what(trace)}\n")
    _print_note(availability_note(trace, str(path)))
    _show_spreads("clients at", online_spreads(presence))
    never = int((presence.intervals == 0).sum())
    if never:
        print(counted(never, "client is never online", "clients are never online"))
    rows = [(f"{hour:02d} h", share, f"{share:.1%}") for hour, share in enumerate(presence.by_hour.tolist())]
    _show_bars("clients online by hour of the trace's day", rows, whole=1.0)


def _print_note(note: str | None) -> None:
    if note is not None:
        typer.echo(f"note: {note}", err=True)


def _show_spreads(title: str, spreads: "list[Spread]") -> None:
    from fedscale_ext.driver.tables import console, print_table
    from fedscale_ext.population.traces.statistics import QUANTILES

    rows = [[spread.name, *map(_figure, spread.quantiles)] for spread in spreads]
    print_table(console(), [title, *(f"{level} %" for level in QUANTILES)], rows)


def _show_bars(title: str, rows: Sequence[tuple[str, float, str]], whole: float | None = None) -> None:
    """A bar to each row (label, value, what stands behind it), as long as ``whole`` or the largest value fills."""
    most = whole or max(value for _, value, _ in rows)
    width = max(len(label) for label, _, _ in rows)
    block = "█" if _can_show("█–") else "#"
    print(f"\n{title}")
    for label, value, text in rows:
        shown = label if block == "█" else label.replace("–", "-")
        print(f"{shown:>{width}}  {block * round(_BAR * value / most):<{_BAR}}  {text}")


def _figure(value: float) -> str:
    """Four digits, and whole thousands: 41, 7.056, 203,600."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _can_show(characters: str) -> bool:
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
