"""What was measured, as files: runs.jsonl has a line per finished job, tables.json says which table shows which lines.

A line of runs.jsonl is one job with one seed, or a part of it where a script makes several rows of a job::

    {"id": "8 hex digits", "data": "speech_half", "scale": "small", "seed": 1, "keys": {"method": "fedavg", ...},
     "code": "commit, or null", "figures": {"accuracy %": 66.5, ...}}

`keys` are the job's effective keys, those of `--set` included. Equal jobs are one line, however many tables show it.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isnan, nan
from pathlib import Path
from typing import Any

from fedscale_ext.core.errors import UserError

RUNS_FILE, TABLES_FILE, PAGE = "runs.jsonl", "tables.json", "results.md"
DIGITS = 10  # of a figure: pages show four, and differences of figures lose some
_OPTIONAL = ("part", "ambiguous")


@dataclass(frozen=True)
class Measurement:
    """A line of runs.jsonl.

    Args:
        data: name of the data set.
        scale: scale of the job.
        seed: seed of the job.
        keys: the job's effective keys. A row that is not of one job has the key ``table``, the table that made it.
        figures: values by column.
        part: label of the row, where a script makes several rows of a job.
        code: commit of the code that trained it. None: not known, and keys of data sets and scales are not recorded.
        ambiguous: what is not known for sure, in a sentence; empty where nothing is.
    """

    data: str
    scale: str
    seed: int
    keys: Mapping[str, Any]
    figures: Mapping[str, float]
    part: str = ""
    code: str | None = None
    ambiguous: str = ""

    @property
    def id(self) -> str:
        """Eight hex digits of all but the figures: equal jobs have equal ids."""
        identity = [self.data, self.scale, self.seed, self.keys, self.part, self.code, self.ambiguous]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]

    def line(self) -> str:
        """Return its line without the newline, figures with ``DIGITS`` digits."""
        content = {"id": self.id, "data": self.data, "scale": self.scale, "seed": self.seed,
                   "keys": dict(sorted(self.keys.items())), "part": self.part, "code": self.code,
                   "ambiguous": self.ambiguous,
                   "figures": {name: _json_number(value) for name, value in sorted(self.figures.items())}}  # fmt: skip
        known = {name: value for name, value in content.items() if value or name not in _OPTIONAL}
        return json.dumps(known, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def shortened(value: float) -> float:
    """The value with ``DIGITS`` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _json_number(value: float) -> float | None:
    """The value as JSON has it: an integer where it is one, null for NaN."""
    short = shortened(value)
    if isnan(short):
        return None
    return int(short) if short.is_integer() else short


@dataclass(frozen=True)
class TableRow:
    """A row of a table: ``runs`` are ids of lines, a seed each; ``paper`` the published figures by column; ``failed``
    says why there is no result."""

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
        incomparable: by label, why a row cannot stand beside the others; written by hand.
        shares: share of clients by label.
    """

    script: str
    scale: str
    commands: Sequence[str] = ()
    rows: Sequence[TableRow] = ()
    notes: Sequence[str] = ()
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
            replace_file(self.folder / RUNS_FILE, _lines(self.runs))
        replace_file(self.folder / TABLES_FILE, _tables_text(self.tables))
        replace_file(self.folder / RUNS_FILE, _lines(kept))
        self.runs = kept

    @classmethod
    def load(cls, folder: Path) -> "Records":
        """Read both files; a folder without them has recorded nothing.

        Raises:
            UserError: a file is broken; names the file and, in runs.jsonl, the line.
        """
        runs = _read_runs(folder / RUNS_FILE)
        return cls(folder, runs, _read_tables(folder / TABLES_FILE, runs))


def _lines(runs: Mapping[str, Measurement]) -> str:
    """The text of runs.jsonl: jobs of one data set together, seeds of a job below each other."""

    def order(run: Measurement) -> tuple[str, str, str, str, int, str]:
        return run.data, run.scale, json.dumps(run.keys, sort_keys=True), run.part, run.seed, run.id

    return "".join(f"{run.line()}\n" for run in sorted(runs.values(), key=order))


def _read_runs(path: Path) -> dict[str, Measurement]:
    runs: dict[str, Measurement] = {}
    lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        run = _measurement(line, f"{path}, line {number}")
        if run.id in runs:
            raise UserError(f"{path}, line {number}: {run.id} was there before: delete one of the two lines")
        runs[run.id] = run
    return runs


def _measurement(line: str, where: str) -> Measurement:
    ways_out = "mend the line, delete it, or take the file from git"
    try:
        content = json.loads(line)
        figures = {name: nan if value is None else float(value) for name, value in content["figures"].items()}
        run = Measurement(
            str(content["data"]),
            str(content["scale"]),
            int(content["seed"]),
            dict(content["keys"]),
            figures,
            str(content.get("part", "")),
            content["code"],
            str(content.get("ambiguous", "")),
        )
        written = content["id"]
    except KeyError as error:
        raise UserError(f"{where}: there is no {error}: {ways_out}") from None
    except (ValueError, TypeError, AttributeError):
        raise UserError(f"{where} is not a run (evals/README.md has the form of a line): {ways_out}") from None
    if written != run.id:
        raise UserError(f"{where}: id {written} is not that of its keys: write {run.id}, there and in {TABLES_FILE}")
    return run


def _tables_text(tables: Mapping[str, Table]) -> str:
    """The text of tables.json: a line per row, so that differences between versions are small."""
    texts = []
    for name, table in sorted(tables.items()):
        head = {"script": table.script, "scale": table.scale, "commands": list(table.commands),
                "notes": list(table.notes), "incomparable": dict(table.incomparable),
                "shares": dict(table.shares)}  # fmt: skip
        fields = [f"  {_text(key)}: {_text(value)}" for key, value in head.items() if value]
        rows = ",\n".join(f"   {_text(_row_content(row))}" for row in table.rows)
        fields.append(f'  "rows": [\n{rows}\n  ]')
        texts.append(f" {_text(name)}: {{\n" + ",\n".join(fields) + "\n }")
    return "{\n" + ",\n".join(texts) + "\n}\n"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _row_content(row: TableRow) -> dict[str, Any]:
    lists = {"runs": list(row.runs), "paper": dict(row.paper), "failed": list(row.failed)}
    return {"label": row.label, "data": row.data, **{name: value for name, value in lists.items() if value}}


def _read_tables(path: Path, runs: Mapping[str, Measurement]) -> dict[str, Table]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        tables = {name: Table(**{**table, "rows": [TableRow(**row) for row in table["rows"]]})
                  for name, table in content.items()}  # fmt: skip
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


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
