"""Comparisons for the terminal: few columns, so that 80 of its own suffice."""

from collections.abc import Sequence

from fedscale_ext.report.arms import Arm, shown
from fedscale_ext.report.compared import Line

_COLUMNS = ("accuracy", "global", "iqr", "macs", "network", "time")
_WITH_SPREAD = ("accuracy", "global")


def comparison_rows(arms: Sequence[Arm], lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    """Titles and a row per line of the comparison but for papers'; the best of a column has a star behind it."""
    columns = [(index, figure) for index, figure in enumerate(shown(arms)) if figure.key in _COLUMNS]
    rows = []
    for line in lines:
        if line.kind == "paper":
            continue
        cells = []
        for index, figure in columns:
            cell = line.cells[index]
            spread = f" {cell.spread}" if cell.spread and figure.key in _WITH_SPREAD else ""
            cells.append(f"{cell.value}{spread}{'*' if cell.best else ''}")
        marks = "; ".join(filter(None, ("personal" if line.personal else "", line.state)))
        label = f"{line.label} ({marks})" if marks else line.label
        rows.append([label, str(len(arms[line.index].jobs)) if line.index is not None else "", *cells])
    return ["", "jobs", *(figure.title for _, figure in columns)], rows
