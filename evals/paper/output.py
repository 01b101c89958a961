"""A script's results as JSON, as a Markdown table "paper / here", and as a picture."""

import json
import os
import re
import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evals.paper.floor_table import TESTED_ON, floor_lines, floors
from evals.paper.job_keys import recorded
from evals.paper.orders import Row, differences, interval, limits, number

if TYPE_CHECKING:
    from evals.paper.engine import Experiment, Run

_ROOT = Path(__file__).resolve().parents[2]
_ABSOLUTE = re.compile(r"(?<![^\s\"'`(=])/(?:[^\s/\"'`()]+/)*([^\s/\"'`()]+)")  # an absolute path; its last part


def write(
    experiment: "Experiment", runs: Sequence["Run"], stem: Path, commands: Sequence[str], scale: str,
    earlier: Sequence["Run"] = (), order: Sequence[tuple[str, str]] = (),
) -> None:  # fmt: skip
    """Write ``stem``.json, .md and, once there is a result, .png.

    Args:
        experiment: the table or figure.
        runs: its runs.
        stem: path of the results without an ending.
        commands: the commands that gave the results, one after the other.
        scale: the scale.
        earlier: runs of the earlier file that are not run again (:func:`earlier_results`).
        order: arm and data of each row, in the order of the rows.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    finished = [run for run in runs if run.log_dir is not None]
    shown = finished if experiment.rows is None else experiment.rows(finished)
    shown = _replaced(earlier, shown)
    if experiment.derived is not None:
        shown = _replaced(shown, experiment.derived(shown))
    if earlier:
        shown = sorted(shown, key=lambda run: (_index(run.arm.label, run.data, order), run.seed))
    rows = aggregated([*shown, *(run for run in runs if run.log_dir is None)])
    content = {"name": experiment.name, "scale": scale, "commands": list(commands), "rows": rows}
    by_hand = _by_hand(stem) if earlier else {}
    older = {run.arm.label for run in earlier}
    notes = by_hand.get("notes", [])
    incomparable = {label: why for label, why in by_hand.get("incomparable", {}).items() if label in older}
    content |= {name: value for name, value in (("notes", notes), ("incomparable", incomparable)) if value}
    if experiment.orders:
        content["differences"] = differences(experiment.orders, rows)
    if experiment.shares is not None and finished:
        content["shares"] = dict(experiment.shares(finished))
    picture = _named(stem, ".png").name if experiment.plot is not None and shown else ""
    replace_file(_named(stem, ".json"), json.dumps(content, indent=1) + "\n")
    floor_rows = floors(stem.parent, scale)
    text = markdown(experiment, rows, commands, picture, content.get("shares"), floor_rows, notes)
    replace_file(_named(stem, ".md"), text)
    if experiment.plot is not None and shown:
        experiment.plot(replace(experiment, not_run=_not_run(runs, earlier)), shown, _named(stem, ".png"))


def _replaced(earlier: Sequence["Run"], new: Sequence["Run"]) -> list["Run"]:
    """Earlier and new runs; a new one replaces the earlier one of its label, data and seed."""
    renewed = {(run.arm.label, run.data, run.seed) for run in new}
    return [*(run for run in earlier if (run.arm.label, run.data, run.seed) not in renewed), *new]


def earlier_results(
    stem: Path, now: Container[tuple[str, str, int]]
) -> tuple[list["Run"], list[str], list[tuple[str, str]]]:
    """Read an earlier results file.

    Args:
        stem: path of the file without its ending.
        now: arm, data and seed of the runs that are run again, which are left out.

    Returns:
        Its runs, as figures without a job; the commands that gave them; and label and data of all its rows, those not
        run too.

    Raises:
        SystemExit: there is no such file.
    """
    from evals.paper.engine import Arm, Run

    path = _named(stem, ".json")
    if not path.is_file():
        sys.exit(f"--add: there is no {path} to add to; leave it out")
    runs, content = [], json.loads(path.read_text(encoding="utf-8"))
    for row in content["rows"]:
        arm = Arm(row["label"], row["keys"], row["data"], row["paper"])
        for index, seed in enumerate(row["seeds"]):
            figures = {name: figure["values"][index] for name, figure in row["figures"].items()}
            if (row["label"], row["data"], seed) not in now:
                runs.append(Run(arm, row["data"], seed, None, figures))
    return runs, content["commands"], [(row["label"], row["data"]) for row in content["rows"]]


def _by_hand(stem: Path) -> dict[str, Any]:
    """What people wrote into ``stem``.json about its jobs, which its script cannot know.

    ``notes`` are sentences; ``incomparable`` says by label why a row cannot stand beside the others.
    """
    path = _named(stem, ".json")
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: content[name] for name in ("notes", "incomparable") if name in content}


def _not_run(runs: Sequence["Run"], earlier: Sequence["Run"]) -> list[str]:
    """Data sets of which the picture can show nothing."""
    with_figures = {run.data for run in (*runs, *earlier) if run.figures}
    return [data for data in dict.fromkeys(run.data for run in runs) if data not in with_figures]


def _index(label: str, data: str, order: Sequence[tuple[str, str]]) -> int:
    return order.index((label, data)) if (label, data) in order else len(order)


def aggregated(runs: Sequence["Run"]) -> list[dict[str, Any]]:
    """A row per arm and data set: each figure's mean and standard deviation over seeds (0 for one), and its values."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.arm.label, run.data), []).append(run)
    rows = []
    for (label, data), group in groups.items():
        finished = [run for run in group if not run.failed]
        figures = {}
        for name in finished[0].figures if finished else ():
            if not all(name in run.figures for run in finished):
                continue
            values = np.array([run.figures[name] for run in finished], dtype=np.float64)
            figures[name] = {
                "mean": float(values.mean()),
                "std": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
                "values": values.tolist(),
            }
        rows.append(
            {
                "label": label,
                "data": data,
                "seeds": [run.seed for run in finished],
                "figures": figures,
                "paper": dict(group[0].arm.paper),
                "keys": {name: _relative(value) for name, value in recorded(group[0].arm.keys).items()},
                "failed": sorted({_without_folders(run.failed) for run in group if run.failed}),
            }
        )
    return rows


def _relative(value: Any) -> Any:
    """Path of a file of this repository below its root: results are read on other machines."""
    path = Path(value) if isinstance(value, str) else None
    return path.relative_to(_ROOT).as_posix() if path is not None and path.is_relative_to(_ROOT) else value


def _without_folders(sentence: str) -> str:
    """Why a job failed, with files by their names alone: their folders differ between machines."""
    return _ABSOLUTE.sub(r"\1", sentence)


def markdown(
    experiment: "Experiment", rows: Sequence[dict[str, Any]], commands: Sequence[str], picture: str,
    shares: Mapping[str, float] | None = None, floor_rows: Sequence[Row] = (), notes: Sequence[str] = (),
) -> str:  # fmt: skip
    """The table; a cell is "paper / here", here as mean ± deviation over seeds. ``picture``: a file, or "";
    ``shares`` of clients by arm, over all seeds and data sets. ``floor_rows`` stand below a table of accuracies.
    ``notes`` are about the jobs of this file alone."""
    head = ["", "data", "seeds", *experiment.columns, *(["share of clients %"] if shares else [])]
    lines = [f"# {experiment.title}", "", ", then ".join(f"`{command}`" for command in commands), ""]
    if experiment.note:
        lines += [experiment.note, ""]
    lines += [line for note in notes for line in (f"**{note}**", "")]
    lines += ["Each cell: paper / here, or here alone (mean ± standard deviation over seeds). The paper's figures are "
              "those of its own data, models and sizes.", ""]  # fmt: skip
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [_cell(row, column) for column in experiment.columns]
        if shares:
            cells.append(number(100 * shares[row["label"]]) if row["label"] in shares else "–")
        seeds = ", ".join(map(str, row["seeds"])) or "; ".join(row["failed"])
        lines.append("| " + " | ".join([row["label"], row["data"], seeds, *cells]) + " |")
    judged = [row["data"] for row in rows if set(experiment.columns) & set(row["figures"]) & set(TESTED_ON)]
    lines += floor_lines(floor_rows, list(dict.fromkeys(judged)))
    compared = differences(experiment.orders, rows)
    if compared:
        lines += ["", "Differences between jobs of the same seed (mean ± standard deviation over seeds):", ""]
        lines += ["| | less | data | | difference | 95 % interval | seeds above 0 |", "|---|---|---|---|---|---|---|"]
    for one in compared:
        spread = f" ± {number(one['std'])}" if len(one["values"]) > 1 else ""
        above = f"{sum(value > 0 for value in one['values'])} of {len(one['values'])}"
        names = [one["more"], one["less"], one["data"], one["column"]]
        cells = [*names, f"{number(one['mean'])}{spread}", limits(interval(one["values"])), above]
        lines.append("| " + " | ".join(cells) + " |")
    if picture:
        lines += ["", f"![{experiment.title}]({picture})"]
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, Any], column: str) -> str:
    paper = row["paper"].get(column)
    here = row["figures"].get(column)
    published = "" if paper is None else f"{paper:g} / "
    if here is None:
        return f"{published}–"
    spread = f" ± {number(here['std'])}" if len(here["values"]) > 1 else ""
    return f"{published}{number(here['mean'])}{spread}"


def _named(stem: Path, ending: str) -> Path:
    """Data sets' names have points."""
    return stem.with_name(stem.name + ending)


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
