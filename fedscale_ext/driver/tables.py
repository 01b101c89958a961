"""Tables for people in a terminal and for programs in a pipe."""

import os
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def console(*, stderr: bool = False) -> Console:
    """Return standard output or error; colours only in a terminal and without NO_COLOR.

    A command in a notebook's cell writes plain lines, since the cell would keep every state of a progress bar.
    Jupyter's kernels give commands FORCE_COLOR, and a pseudo-terminal after ``!``. JPY_PARENT_PID tells these apart.
    """
    return Console(stderr=stderr, force_terminal=False if "JPY_PARENT_PID" in os.environ else None)


def print_table(out: Console, titles: Sequence[str], rows: Sequence[Sequence[str]], *, sentences: bool = False) -> None:
    """A table that fits the terminal; where there is none, aligned columns with every cell whole.

    With ``sentences``, the last column holds sentences: it gets most of the width, and rows stand apart.
    """
    if out.is_terminal:
        table = Table(*titles, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for column in table.columns:
            column.overflow = "fold"  # a long name goes on below: cut short it might be another's
        if sentences:
            _widen_last(table, titles, rows, out.width)
        for row in rows:
            table.add_row(*map(Text, row))
        out.print(table)
        return
    widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
    for row in [titles, *rows]:
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _widen_last(table: Table, titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> None:
    """Make columns before the last as narrow as their words allow; names in the first stay whole if there is room."""
    longest = [max(len(word) for row in [titles, *rows] for word in row[i].split() or [""]) for i in range(len(titles))]
    table.leading = 1
    table.columns[0].no_wrap = longest[0] <= width // 3
    for column, word in zip(table.columns[1:-1], longest[1:-1], strict=True):
        column.max_width = max(word, width // 7)


def print_figures(out: Console, name: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A method's own table. One of many figures of a few things, such as tiers, has a column for each thing."""
    out.print(name, markup=False, highlight=False)
    if len(titles) > len(rows) + 1:
        titles, *rows = zip(titles, *rows, strict=True)
    print_table(out, titles, rows)
