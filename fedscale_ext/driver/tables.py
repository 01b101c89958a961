"""Tables for people in a terminal and for programs in a pipe."""

import os
import re
import textwrap
from collections.abc import Sequence
from functools import partial

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH = 100  # columns of entries


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


def print_entries(out: Console, titles: tuple[str, str], entries: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Names, and beside each of them its lines below one another, in at most 100 columns, in a pipe as well.

    A line that begins with ``fedscale`` is a command. A long one goes on after a backslash and can be copied.
    """
    width = min(_WIDTH, out.width) if out.is_terminal else _WIDTH
    margin = max(len(name) for name, _ in [titles, *entries]) + 2
    for name, lines in [(titles[0], [titles[1]]), *entries]:
        wrapped = [part for line in lines for part in _wrapped(line, width - margin)]
        for label, part in zip([name, *[""] * (len(wrapped) - 1)], wrapped, strict=True):
            out.print(f"{label:<{margin}}{part}", markup=False, highlight=False, soft_wrap=True)


def _wrapped(line: str, room: int) -> list[str]:
    """Split a line at spaces into parts of at most ``room`` columns."""
    wrap = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)
    if not line.startswith("fedscale "):
        return wrap(line, room)
    unsplit = re.sub(r"( --?[\w-]+) (?=[^-])", "\\1\xa0", line)  # an option stays with its value
    *first, last = [part.replace("\xa0", " ") for part in wrap(unsplit, room - len(" \\"), subsequent_indent="  ")]
    return [*(f"{part} \\" for part in first), last]


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
