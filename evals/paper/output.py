"""A script's runs as lines of runs.jsonl and rows of tables.json, and the page results.md that is made from both."""

import importlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.floor_table import TESTED_ON, floor_lines, floors_name
from evals.paper.measurement import Measurement
from evals.paper.orders import COMPARABLE, Row, differences, interval, limits, number
from evals.paper.papers import TITLES
from evals.paper.runs import PAGE, Records, Table, TableRow, link, locked
from fedscale_ext.util.atomic_files import write_atomic

FLOORS = "floors"
_ABSOLUTE = re.compile(r"(?<![^\s\"'`(=])/(?:[^\s/\"'`()]+/)*([^\s/\"'`()]+)")  # an absolute path; its last part
_CELLS = (
    "Each cell: paper / here, or only here (mean ± standard deviation over seeds). The paper's figures are those of "
    "its own data, models and sizes. Differences are between jobs of the same seed."
)


def record(
    experiment: Experiment, runs: Sequence[Run], folder: Path, name: str, command: str, scale: str,
    order: Sequence[tuple[str, str]] = (),
) -> list[Run]:  # fmt: skip
    """Record runs as the table ``name`` of a folder, beside what it has, and write the page.

    A run replaces the one of its label, data and seed in this table. Other tables keep theirs. Scripts may record at
    the same time. Figures that no page reads are not recorded. A job's folder has them; floors' figures are
    only printed.

    Args:
        experiment: the table or figure.
        runs: its runs, those without a result too.
        folder: where runs.jsonl and tables.json are.
        name: name of the table.
        command: the command that gave the runs.
        scale: the scale.
        order: label and data of each row, in the order of the rows.

    Returns:
        The runs that the table shows.

    Raises:
        UserError: the recorded files are broken.
    """
    with locked(folder):
        records = Records.load(folder)
        table = records.tables.get(name, Table(experiment.name, scale))
        finished = [run for run in runs if not run.failed]
        new = finished if experiment.rows is None else experiment.rows(finished)
        shown = _replaced(recorded_runs(records, table, experiment.arms), new)
        if experiment.derived is not None:
            made = [replace(run, keys=None, recorded="") for run in experiment.derived(shown)]  # of no job alone
            shown = _replaced(shown, made)
        if order:
            shown = sorted(shown, key=lambda run: (_index(run.arm.label, run.data, order), run.seed))
        older = {run.arm.label for run in shown if run.recorded}
        labels: dict[Path | None, set[str]] = {}
        for run in finished:
            labels.setdefault(run.log_dir, set()).add(run.arm.label)
        used = _used(experiment)
        shown = [run if run.recorded else _recorded(run, records, name, scale, labels.get(run.log_dir, set()), used)
                 for run in shown]  # fmt: skip
        shares = dict(experiment.shares(finished)) if experiment.shares is not None and finished else table.shares
        records.tables[name] = replace(
            table,
            commands=[*(one for one in table.commands if one != command), command],
            rows=[
                *_table_rows([*shown, *(run for run in runs if run.failed)], used),
                *_still_without(table, shown, runs),
            ],
            row_notes={label: note for label, note in table.row_notes.items() if label in older},
            incomparable={label: why for label, why in table.incomparable.items() if label in older},
            shares=shares,
        )
        records.save()
        write_page(records, experiment)
    return shown


def _still_without(table: Table, shown: Sequence[Run], runs: Sequence[Run]) -> list[TableRow]:
    """Rows of a table without a result that these runs say nothing of."""
    said = {(run.arm.label, run.data) for run in (*shown, *runs)}
    return [row for row in table.rows if not row.runs and (row.label, row.data) not in said]


def draw(experiment: Experiment, shown: Sequence[Run], unfinished: Sequence[str], path: Path) -> None:
    """Draw a table's picture. ``unfinished`` are data sets, which the picture names if it shows nothing of them."""
    if experiment.plot is not None and shown:
        missing = [data for data in dict.fromkeys(unfinished) if data not in {run.data for run in shown}]
        path.parent.mkdir(parents=True, exist_ok=True)
        experiment.plot(replace(experiment, not_run=missing), shown, path)


def _recorded(run: Run, records: Records, table: str, scale: str, labels: set[str], columns: set[str]) -> Run:
    """The run with its line, which has the figures of ``columns``; ``labels`` are those of its job's arms."""
    of_job = run.log_dir is not None and bool(run.keys)
    keys = run.keys if of_job and run.keys else {"table": table}
    part = "" if of_job and run.arm.label in labels else run.arm.label
    figures = {name: value for name, value in run.figures.items() if name in columns}
    line = Measurement(run.data, scale, run.seed, keys, figures, part, run.code)
    return replace(run, recorded=records.add(line), figures=records.runs[line.id].figures)


def _replaced(earlier: Sequence[Run], new: Sequence[Run]) -> list[Run]:
    """Earlier and new runs; a new one replaces the earlier one of its label, data and seed."""
    renewed = {(run.arm.label, run.data, run.seed) for run in new}
    return [*(run for run in earlier if (run.arm.label, run.data, run.seed) not in renewed), *new]


def _index(label: str, data: str, order: Sequence[tuple[str, str]]) -> int:
    return order.index((label, data)) if (label, data) in order else len(order)


def _used(experiment: Experiment) -> set[str]:
    """The columns that a table shows or compares, and accuracies beside which floors stand; pictures read no others."""
    ordered = {order.column for order in experiment.orders}
    return {*experiment.columns, *TESTED_ON, *ordered, *(form.format(name) for form in COMPARABLE for name in ordered)}


def _table_rows(runs: Sequence[Run], columns: set[str]) -> list[TableRow]:
    """A row per label and data set, in the order in which they come, with the published figures of ``columns``."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.arm.label, run.data), []).append(run)
    return [
        TableRow(label, data, [run.recorded for run in group if not run.failed],
                 {name: value for name, value in group[0].arm.paper.items() if name in columns},
                 sorted({_without_folders(run.failed) for run in group if run.failed}))
        for (label, data), group in groups.items()
    ]  # fmt: skip


def recorded_runs(records: Records, table: Table, arms: Sequence[Arm] = (), failed: bool = False) -> list[Run]:
    """The runs of a table, in the order of its rows; with ``failed`` those without a result, too."""
    swept = {arm.label: arm.x for arm in arms}
    runs = []
    for row in table.rows:
        arm = Arm(row.label, {}, row.data, row.paper, swept.get(row.label))
        for each in row.runs:
            line = records.runs[each]
            runs.append(Run(arm, row.data, line.seed, None, line.figures, keys=line.keys, code=line.code,
                            recorded=each))  # fmt: skip
        runs += [Run(arm, row.data, 0, None, failed=why) for why in row.failed] if failed else []
    return runs


def rows_of(records: Records, name: str) -> list[dict[str, Any]]:
    """The rows of a table with their figures; none of a table that is not recorded."""
    return aggregated(recorded_runs(records, records.tables[name], failed=True)) if name in records.tables else []


def recorded_floors(records: Records, scale: str) -> list[dict[str, Any]]:
    """The rows of the floors at a scale; none where they were not run."""
    return rows_of(records, floors_name(scale))


def aggregated(runs: Sequence[Run]) -> list[dict[str, Any]]:
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
                "std": float(values.std(ddof=1))
                if len(set(values)) > 1
                else 0.0,  # not the rounding of a mean of equals
                "values": values.tolist(),
            }
        rows.append(
            {
                "label": label,
                "data": data,
                "seeds": [run.seed for run in finished],
                "figures": figures,
                "paper": dict(group[0].arm.paper),
                "failed": sorted({_without_folders(run.failed) for run in group if run.failed}),
            }
        )
    return rows


def _without_folders(sentence: str) -> str:
    """Why a job failed, with files by their names alone: their folders differ between machines."""
    return _ABSOLUTE.sub(r"\1", sentence)


def introduction(experiment: Experiment) -> list[str]:
    """Lines that the tables of one script share: the heading and the note."""
    return [f"## {experiment.title}", "", *([experiment.note, ""] if experiment.note else [])]


def section(
    experiment: Experiment, name: str, table: Table, rows: Sequence[Mapping[str, Any]], *,
    floor_rows: Sequence[Row] = (), remarks: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Lines of the page: a table, a cell is "paper / here". Tables of data that have ``floor_rows`` link to these.
    ``remarks`` stand below the table. Data and seeds that all rows share stand above it; columns without a figure are
    left out."""
    done = [row for row in rows if row["seeds"]]
    datas = {row["data"] for row in rows}
    seeds = {tuple(row["seeds"]) for row in done}
    shared = ["" if len(datas) != 1 else f"Data: {min(datas)}", f"scale: {table.scale}",
              "" if len(seeds) != 1 else f"seeds: {_listed(min(seeds))}"]  # fmt: skip
    facts = "; ".join(part for part in shared if part)
    lines = [f"### {name}", "", f"{facts[0].upper()}{facts[1:]}.", "", "```bash", *table.commands, "```", ""]
    lines += [line for note in (*table.notes, *table.row_notes.values()) for line in (f"**{note}**", "")]
    if done:
        columns = [name for name in experiment.columns if any(name in row["figures"] | row["paper"] for row in done)]
        lines += _table(columns, done, table.shares, data=len(datas) > 1, seeds=len(seeds) > 1)
    lines += _without_result([row for row in rows if not row["seeds"]], named=len(datas) > 1)
    lines += [line for remark in remarks for line in ("", remark)]
    judged = {row["data"] for row in rows if set(experiment.columns) & set(row["figures"]) & set(TESTED_ON)}
    if any(row["data"] in judged for row in floor_rows):
        lines += ["", f"Compare with the [floors](#{floors_name(table.scale)})."]
    compared = differences(experiment.orders, rows)
    if any(len(one["values"]) > 1 for one in compared):  # of one seed, they are plain to see
        lines += ["", "Differences:", "", *_differences(compared, data=len(datas) > 1)]
    return [*lines, ""]


def _table(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], shares: Mapping[str, float], *, data: bool, seeds: bool
) -> list[str]:
    """A row each, with its data set and its seeds where rows differ in these."""
    lines = _header(["", *["data"] * data, *["seeds"] * seeds, *columns, *["share of clients %"] * bool(shares)])
    for row in rows:
        cells = [row["label"], *[row["data"]] * data, *[_listed(row["seeds"])] * seeds]
        cells += [_cell(row, column) for column in columns]
        if shares:
            cells.append(number(100 * shares[row["label"]]) if row["label"] in shares else "–")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _differences(compared: Sequence[Mapping[str, Any]], *, data: bool) -> list[str]:
    """A row per order."""
    lines = _header(["", "less", *["data"] * data, "", "difference", "95 % interval", "seeds above 0"])
    for one in compared:
        spread = f" ± {number(one['std'])}" if len(one["values"]) > 1 else ""
        above = f"{sum(value > 0 for value in one['values'])} of {len(one['values'])}"
        cells = [one["more"], one["less"], *[one["data"]] * data, one["column"], f"{number(one['mean'])}{spread}"]
        cells += [limits(interval(one["values"])), above]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def remarks_on(records: Records, table: Table) -> list[str]:
    """Sentences on what the lines of a table do not say for sure, and on versions of the code that it mixes."""
    lines = [(row, records.runs[each]) for row in table.rows for each in row.runs]
    unsure: dict[str, dict[str, None]] = {}
    for row, line in lines:
        if line.ambiguous:
            unsure.setdefault(line.ambiguous, {})[f"{row.label} on {row.data}"] = None
    remarks = [f"Ambiguous: {'; '.join(labels)}. {why}" for why, labels in unsure.items()]
    versions = sorted({line.code or "not recorded" for _, line in lines if "table" not in line.keys})
    if len(versions) > 1:
        remarks.append(f"Its jobs are of several versions of the code: {', '.join(versions)}.")
    return remarks


def _header(names: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]


def _without_result(rows: Sequence[Mapping[str, Any]], *, named: bool) -> list[str]:
    """Rows without a result below the table, by the reason, with their published figures and, if ``named``, data."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        published = ", ".join(f"{name} {value:g}" for name, value in row["paper"].items())
        name = f"`{row['label']}`"  # names hold commas
        label = f"{name} (paper: {published})" if published else name
        by_reason.setdefault("; ".join(row["failed"]), {}).setdefault(row["data"], []).append(label)
    lines = []
    for reason, by_data in by_reason.items():
        labels = [", ".join(each) + (f" on {data}" if named else "") for data, each in by_data.items()]
        lines += ["", f"{reason[:1].upper()}{reason[1:]}: {'; '.join(labels)}."]
    return lines


def _cell(row: Mapping[str, Any], column: str) -> str:
    paper = row["paper"].get(column)
    here = row["figures"].get(column)
    published = "" if paper is None else f"{paper:g} / "
    if here is None:
        return f"{published}–"
    spread = f" ± {number(here['std'])}" if len(here["values"]) > 1 else ""
    return f"{published}{number(here['mean'])}{spread}"


def page(records: Records, experiments: Mapping[str, Experiment]) -> str:
    """The page results.md of a folder: a section per table, the floors last. ``experiments`` by name of the script."""
    title = TITLES.get(records.folder.name, records.folder.name)
    names = [name for name, table in sorted(records.tables.items()) if table.script != FLOORS]
    floor_names = [name for name, table in sorted(records.tables.items()) if table.script == FLOORS]
    lines = [f"# Results of {title}", "", "`python -m evals.tables` writes this page from "
             "[runs.jsonl](runs.jsonl) and [tables.json](tables.json).", "", _CELLS, ""]  # fmt: skip
    by_script: dict[str, list[str]] = {}
    for name in names:
        by_script.setdefault(records.tables[name].script, []).append(name)
    for script, tables in by_script.items():
        lines.append(f"- {experiments[script].title}: {', '.join(map(_linked, tables))}")
    lines += [f"- Floors, which systems should exceed: {_linked(name)}" for name in floor_names]
    lines.append("")
    for script, tables in by_script.items():
        lines += introduction(experiments[script])
        for name in tables:
            table = records.tables[name]
            floor_rows, remarks = recorded_floors(records, table.scale), remarks_on(records, table)
            lines += section(experiments[script], name, table, rows_of(records, name), floor_rows=floor_rows,
                             remarks=remarks)  # fmt: skip
    for name in floor_names:
        lines += [
            f"## {name}",
            "",
            "```bash",
            *records.tables[name].commands,
            "```",
            *floor_lines(rows_of(records, name)),
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def _linked(table: str) -> str:
    return f"[{table}](#{link(table).partition('#')[2]})"


def page_of(records: Records, *known: Experiment) -> str:
    """The page of a folder; scripts of ``known`` experiments are not imported."""
    experiments = {experiment.name: experiment for experiment in known}
    for table in records.tables.values():
        if table.script != FLOORS and table.script not in experiments:
            experiments[table.script] = experiment_of(records.folder.name, table.script)
    return page(records, experiments)


def write_page(records: Records, *known: Experiment) -> bool:
    """Write the page of a folder, and say whether it changed."""
    path, text = records.folder / PAGE, page_of(records, *known)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    write_atomic(path, text)
    return True


def experiment_of(paper: str, script: str) -> Experiment:
    """The experiment of a script."""
    experiment: Experiment = importlib.import_module(f"evals.{paper}.{script}").EXPERIMENT
    return experiment


def settings_of(command: str) -> list[str]:
    """The words of a command that set keys of all its jobs, in order."""
    return sorted(word for word in shlex.split(command) if word.startswith("--set="))
