"""What was measured, as files: runs.jsonl has a line per finished job, tables.json says which table shows which lines.

Equal jobs are one line, however many tables show it.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evals.paper import measurement
from evals.paper.measurement import Measurement, shortened
from fedscale_ext.core.errors import UserError
from fedscale_ext.util.atomic_files import write_atomic

RUNS_FILE, TABLES_FILE, PAGE = "runs.jsonl", "tables.json", "results.md"
NOT_RUN = "not run"


@dataclass(frozen=True)
class TableRow:
    """A row of a table: ``runs`` are ids of lines, a seed each; ``paper`` the published figures of the table's columns;
    ``failed`` says why there is no result."""

    label: str
    data: str
    runs: Sequence[str] = ()
    paper: Mapping[str, float] = field(default_factory=dict)
    failed: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    """What one table shows.

    Args:
        script: name of the script.
        scale: scale of its jobs.
        commands: the commands that gave it, one after the other.
        rows: the rows.
        notes: sentences about its jobs, written by hand.
        row_notes: by label, a sentence about a row's jobs, written by hand.
        incomparable: by label, why a row cannot stand beside the others; written by hand.
        shares: share of clients by label.
    """

    script: str
    scale: str
    commands: Sequence[str] = ()
    rows: Sequence[TableRow] = ()
    notes: Sequence[str] = ()
    row_notes: Mapping[str, str] = field(default_factory=dict)
    incomparable: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Records:
    """All that a folder has recorded: lines by id, tables by name."""

    folder: Path
    runs: dict[str, Measurement] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)

    def add(self, run: Measurement) -> str:
        """Record a line and return its id. Where the job has one, its further columns stay."""
        earlier = self.runs.get(run.id)
        figures = {**(earlier.figures if earlier else {}), **run.figures}
        self.runs[run.id] = replace(run, figures={name: shortened(value) for name, value in figures.items()})
        return run.id

    def save(self) -> None:
        """Write both files, each whole or not at all. Lines that no table shows are left out."""
        self.folder.mkdir(parents=True, exist_ok=True)
        shown = {each for table in self.tables.values() for row in table.rows for each in row.runs}
        kept = {each: run for each, run in self.runs.items() if each in shown}
        if self.runs.keys() != kept.keys():  # the old tables.json refers to these until it is replaced
            write_atomic(self.folder / RUNS_FILE, measurement.lines(self.runs.values()))
        write_atomic(self.folder / TABLES_FILE, _tables_text(self.tables))
        write_atomic(self.folder / RUNS_FILE, measurement.lines(kept.values()))
        self.runs = kept

    @classmethod
    def load(cls, folder: Path) -> "Records":
        """Read both files; a folder without them has recorded nothing.

        Raises:
            UserError: a file is broken; names the file and, in runs.jsonl, the line.
        """
        runs = measurement.read(folder / RUNS_FILE)
        return cls(folder, runs, _read_tables(folder / TABLES_FILE, runs))


def _tables_text(tables: Mapping[str, Table]) -> str:
    """The text of tables.json: a line per row, so that differences between versions are small.

    What rows share stands once: the data set of all of them is the table's, and rows at the end that were not run are
    a list of labels.
    """
    texts = []
    for name, table in sorted(tables.items()):
        data = table.rows[0].data if len({row.data for row in table.rows}) == 1 else None
        rows = [_row_content(row, data) for row in table.rows]
        not_run: list[str] = []
        while data is not None and rows and rows[-1].keys() == {"label", "failed"} and rows[-1]["failed"] == [NOT_RUN]:
            not_run.insert(0, rows.pop()["label"])
        head = {"script": table.script, "scale": table.scale, "data": data, "commands": list(table.commands),
                "notes": list(table.notes), "row_notes": dict(table.row_notes),
                "incomparable": dict(table.incomparable), "shares": dict(table.shares), "not_run": not_run}  # fmt: skip
        fields = [
            f"  {_text(key)}: {_text(value)}"
            for key, value in head.items()
            if value or (key == "data" and data is not None)
        ]
        fields.append('  "rows": [\n' + ",\n".join(f"   {_text(row)}" for row in rows) + "\n  ]")
        texts.append(f" {_text(name)}: {{\n" + ",\n".join(fields) + "\n }")
    return "{\n" + ",\n".join(texts) + "\n}\n"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _row_content(row: TableRow, data: str | None) -> dict[str, Any]:
    """A row's line, without what is empty and without the data set ``data``."""
    content = {"label": row.label, "data": row.data, "runs": list(row.runs), "paper": dict(row.paper),
               "failed": list(row.failed)}  # fmt: skip
    return {name: value for name, value in content.items()
            if name == "label" or (value != data if name == "data" else value)}  # fmt: skip


def _table(content: Mapping[str, Any]) -> Table:
    fields = dict(content)
    shared = {"data": fields.pop("data")} if "data" in fields else {}
    rows = [TableRow(**{**shared, **row}) for row in fields.pop("rows")]
    rows += [TableRow(label, shared["data"], failed=[NOT_RUN]) for label in fields.pop("not_run", ())]
    return Table(**fields, rows=rows)


def _read_tables(path: Path, runs: Mapping[str, Measurement]) -> dict[str, Table]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        tables = {name: _table(table) for name, table in content.items()}
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}): mend it, or take the file from git") from None
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} has a table of another form ({error}): mend it, or take the file from git") from None
    for name, table in tables.items():
        for row in table.rows:
            if missing := [each for each in row.runs if each not in runs]:
                raise UserError(f"{path}: {name} shows run {missing[0]}, which {RUNS_FILE} does not have: take both "
                                f"files from git, or delete the id from the row {row.label!r}")  # fmt: skip
    return tables


def anchor(heading: str) -> str:
    """How a heading is linked to."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def link(table: str) -> str:
    """Where a paper's results page has a table."""
    return f"{PAGE}#{anchor(table)}"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from recording in a folder meanwhile; they wait."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
