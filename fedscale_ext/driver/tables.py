"""Tables for people in a terminal and for programs in a pipe."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def console(*, stderr: bool = False) -> Console:
    """Standard output or error; colours only in a terminal and without NO_COLOR."""
    return Console(stderr=stderr)


def print_table(out: Console, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table that fits the terminal; where there is none, aligned columns with every cell whole."""
    if out.is_terminal:
        table = Table(*titles, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for column in table.columns:
            column.overflow = "fold"  # a long name goes on below: cut short it might be another's
        for row in rows:
            table.add_row(*map(Text, row))
        out.print(table)
        return
    widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
    for row in [titles, *rows]:
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def print_figures(out: Console, name: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A method's own table. One of many figures of a few things, such as tiers, has a column for each thing."""
    out.print(name, markup=False, highlight=False)
    if len(titles) > len(rows) + 1:
        titles, *rows = zip(titles, *rows, strict=True)
    print_table(out, titles, rows)
