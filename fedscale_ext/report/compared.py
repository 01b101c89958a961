"""The table that compares arms: a cell for each figure, the best of each marked, the papers' rows beside."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from fedscale_ext.report.arms import Arm, Figure, best, shown
from fedscale_ext.report.published import paper_row


@dataclass(frozen=True)
class Cell:
    """``value`` in words, ``spread`` over seeds in words or "", whether it is the ``best`` of its column."""

    value: str
    spread: str = ""
    best: bool = False


@dataclass(frozen=True)
class Line:
    """A row: an arm's (``place``, its place among them) or a paper's (None)."""

    label: str
    seeds: str
    data: str
    cells: Sequence[Cell]
    place: int | None
    state: str = ""


def lines(arms: Sequence[Arm]) -> list[Line]:
    """A row per arm, and below it the paper's where it has one for the method on the (real) data."""
    figures = shown(arms)
    tops = {figure.key: best(arms, figure) for figure in figures}
    rows = []
    for place, arm in enumerate(arms):
        cells = [_cell(arm, figure, place in tops[figure.key]) for figure in figures]
        rows.append(Line(arm.label, ", ".join(map(str, arm.seeds)), arm.data, cells, place, arm.state))
        job = arm.jobs[0].header
        where, paper = paper_row(job)
        if paper:
            told = [Cell(figure.tell(paper[figure.key]) if figure.key in paper else "–") for figure in figures]
            rows.append(Line(f"{job['method']}: {where}", "", "", told, None))
    return rows


def has_papers(rows: Sequence[Line]) -> bool:
    """Whether a row of a paper is among them."""
    return any(row.place is None for row in rows)


def comma_separated(arms: Sequence[Arm]) -> str:
    """All figures at full precision, a line per job: arm, job, seed, data, finished, then a column per figure."""
    out, figures = io.StringIO(), shown(arms)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["arm", "job", "seed", "data", "finished", *(figure.key for figure in figures)])
    for arm in arms:
        for job in arm.jobs:
            values = [figure.get(job) for figure in figures]
            told = ["" if value is None else repr(float(value)) for value in values]
            writer.writerow([arm.label, job.name, job.seed, job.data, "yes" if job.finished else "no", *told])
    return out.getvalue()


def _cell(arm: Arm, figure: Figure, top: bool) -> Cell:
    mean = arm.mean(figure.key)
    if mean is None:
        return Cell("–")
    spread = arm.std(figure.key)
    return Cell(figure.tell(mean), f"± {figure.tell(spread)}" if spread else "", top)
