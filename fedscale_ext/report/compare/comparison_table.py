"""The table that compares arms: a cell for each figure, the best of each marked, the papers' rows below.

Pages, csv files and the terminal show it.
"""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedscale_ext.metrics.job_folder.header import floor_figures
from fedscale_ext.report.compare.arms import Arm, shown, with_fine_tuned
from fedscale_ext.report.compare.columns import Column
from fedscale_ext.report.compare.competing import best, equal_values
from fedscale_ext.report.compare.published import paper_row
from fedscale_ext.report.job.loading import FineTunedJob

Kind = Literal["arm", "tuned", "paper", "floor"]
# shown in a terminal: few columns, so that 80 of its own suffice
_IN_TERMINAL = ("accuracy", "global", "balanced", "macro_f1", "auc", "iqr", "macs", "network", "time")
_WITH_SPREAD = ("accuracy", "global")
PERSONAL, BEYOND = "personal", "beyond capacity"
_FLOORS = {"majority": "majority of the client's own labels", "most_frequent": "most frequent label of all clients"}


@dataclass(frozen=True)
class Cell:
    """``value`` in words, ``spread`` over seeds in words or "", whether it is the ``best`` of its column."""

    value: str
    spread: str = ""
    best: bool = False


@dataclass(frozen=True)
class TableRow:
    """A row of a ``kind``.

    ``index`` is that of its arm, None for a paper's row and a floor. ``marks`` say what sets the row apart.
    """

    label: str
    seeds: str
    data: str
    cells: Sequence[Cell]
    index: int | None
    state: str = ""
    kind: Kind = "arm"
    marks: Sequence[str] = ()


def table_rows(arms: Sequence[Arm], by_class: bool = False) -> list[TableRow]:
    """A row per arm, below it the arm fine-tuned and the paper's row where there are any, and each data's floors.

    ``by_class``: rows have the figures of classes, too.
    """
    figures, entries = shown(arms, by_class), with_fine_tuned(arms)
    tops = {figure.key: best([arm for _, arm in entries], figure) for figure in figures}
    rows: list[TableRow] = []
    for number, (index, arm) in enumerate(entries):
        cells = [_cell(arm, figure, number in tops[figure.key]) for figure in figures]
        seeds = ", ".join(map(str, arm.seeds))
        kind: Kind = "tuned" if isinstance(arm.jobs[0], FineTunedJob) else "arm"
        rows.append(TableRow(arm.label, seeds, arm.data, cells, index, arm.state, kind, _marks(arm)))
        if [one for one, _ in entries[number + 1 : number + 2]] != [index]:  # the last row of this arm
            rows += _paper_rows(arm, figures)
    return rows + _floors(arms, figures)


def _marks(arm: Arm) -> list[str]:
    return [*([PERSONAL] if arm.personal else []), *([BEYOND] if arm.beyond_capacity else [])]


def _paper_rows(arm: Arm, figures: Sequence[Column]) -> list[TableRow]:
    """A paper's row for the arm's method on its (real) data, if one was published."""
    header = arm.jobs[0].header
    where, paper = paper_row(header)
    cells = [Cell(figure.tell(paper[figure.key]) if figure.key in paper else "–") for figure in figures]
    return [TableRow(f"{header['method']}: {where}", "", "", cells, None, kind="paper")] if paper else []


def _floors(arms: Sequence[Arm], figures: Sequence[Column]) -> list[TableRow]:
    """What clients reach without a model, for each data set of the arms whose jobs recorded it, under all of its names;
    where the same data were split in several ways, with the names of the arms."""
    rows: dict[tuple[str, ...], TableRow] = {}
    labels: dict[tuple[str, ...], list[str]] = {}
    names: dict[str, list[str]] = {}  # of data, by their digest
    for arm in arms:
        names.setdefault(arm.digest, []).append(arm.data)
    for label, job, kind in ((arm.label, job, kind) for arm in arms for job in arm.jobs for kind in _FLOORS):
        floor = floor_figures(job.header).get(kind)
        if floor and floor["tested"]:
            values = {"accuracy": floor["mean"], "samples": floor["sample_weighted"], "iqr": floor["iqr"]}
            cells = [
                Cell("–" if (value := values.get(figure.key)) is None else figure.tell(value)) for figure in figures
            ]
            data = ", ".join(dict.fromkeys(names[job.digest]))
            key = (kind, data, *(cell.value for cell in cells))
            rows.setdefault(key, TableRow(_FLOORS[kind], "", data, cells, None, kind="floor"))
            labels.setdefault(key, []).append(label)
    splits = Counter((row.label, row.data) for row in rows.values())
    return [
        replace(row, label=f"{row.label} ({', '.join(dict.fromkeys(labels[key]))})")
        if splits[row.label, row.data] > 1
        else row
        for key, row in rows.items()
    ]


def table_notes(rows: Sequence[TableRow]) -> list[str]:
    """Explain the kinds of rows that a table has, in a sentence or two each."""
    notes = []
    if any(PERSONAL in row.marks for row in rows):
        notes.append("In rows marked personal, each client is tested on a model of its own. A shared model must fit "
                     "all clients, so personal and shared rows do not compete.")  # fmt: skip
    if any(row.kind == "tuned" for row in rows):
        notes.append("Fine-tuned rows are tested after personalise_epochs on each client's own data, whose cost is not "
                     "counted.")  # fmt: skip
    floors = [row.label for row in rows if row.kind == "floor"]
    if any(label.startswith(_FLOORS["majority"]) for label in floors):
        notes.append("The majority row is a floor: each client predicts the most frequent label of its own training "
                     "samples, without a model.")  # fmt: skip
    if any(label.startswith(_FLOORS["most_frequent"]) for label in floors):
        notes.append("The row of the most frequent label is a second floor: all clients predict the label that most "
                     "training samples of all clients have. It is the higher one where clients have their labels "
                     "about equally often.")  # fmt: skip
    return notes


def has_papers(rows: Sequence[TableRow]) -> bool:
    """Tell whether a row of a paper is among ``rows``."""
    return any(row.kind == "paper" for row in rows)


def comma_separated(arms: Sequence[Arm]) -> str:
    """All figures at full precision, a line per job but repeats: arm, job, seed, data, finished, figures, personal."""
    out, figures = io.StringIO(), shown(arms, by_class=True)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["arm", "job", "seed", "data", "finished", *(figure.key for figure in figures), "personal"])
    for arm in arms:
        for job in (*arm.jobs, *arm.unfinished):
            values = [figure.get(job) for figure in figures]
            cells = ["" if value is None else repr(float(value)) for value in values]
            finished, personal = (_yes_or_no(value) for value in (job.finished, job.personal))
            writer.writerow([arm.label, job.name, job.seed, arm.data, finished, *cells, personal])
    return out.getvalue()


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _cell(arm: Arm, figure: Column, top: bool) -> Cell:
    mean = arm.mean(figure.key)
    if mean is None:
        return Cell("–")
    spread = arm.std(figure.key)
    differs = spread is not None and not equal_values(mean, mean + spread)  # else it is the rounding of sums
    return Cell(figure.tell(mean), f"± {figure.tell(spread)}" if spread is not None and differs else "", top)


def terminal_table(
    arms: Sequence[Arm], rows: Sequence[TableRow], by_class: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Return titles and cells in words for the terminal, without papers' rows; the best of a column has a star."""
    columns = [(index, figure) for index, figure in enumerate(shown(arms, by_class)) if figure.key in _IN_TERMINAL]
    several = len({row.data for row in rows if row.kind != "paper"}) > 1
    texts = []
    for row in rows:
        if row.kind == "paper":
            continue
        cells = []
        for index, figure in columns:
            cell = row.cells[index]
            spread = f" {cell.spread}" if cell.spread and figure.key in _WITH_SPREAD else ""
            cells.append(f"{cell.value}{spread}{'*' if cell.best else ''}")
        marks = "; ".join(filter(None, (*row.marks, row.state)))
        label = f"{row.label} ({marks})" if marks else row.label
        if several and row.kind == "floor" and row.data not in label:
            label = f"{label}, {row.data}"
        texts.append([label, arms[row.index].count if row.index is not None else "", *cells])
    return ["", "jobs", *(figure.title for _, figure in columns)], texts
