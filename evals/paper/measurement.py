"""A job's figures as lines of runs.jsonl.

A line that stands alone is one job with one seed, or a part of it where a script makes several rows of a job::

    {"id": "8 hex digits", "data": "speech_half", "scale": "small", "seed": 1, "keys": {"method": "fedavg", ...},
     "code": "commit, or null", "figures": {"accuracy %": 66.5, ...}}

`keys` are the job's effective keys, those of `--set` included. In a file, a line has what differs from the line above:
figures are a list then, and `columns` names them. A line whose figures are named is complete.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import Any

from fedscale_ext.core.errors import UserError

DIGITS = 10  # of a figure: pages show four, and differences of figures lose some
_OPTIONAL = ("part", "ambiguous")
_FIRST = {"data": None, "scale": None, "keys": None, "code": None, "part": "", "ambiguous": "", "columns": None}


@dataclass(frozen=True)
class Measurement:
    """A job of runs.jsonl.

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
        return _compact({name: value for name, value in self.content().items() if value or name not in _OPTIONAL})

    def content(self) -> dict[str, Any]:
        """Its line as a dictionary, empty ``part`` and ``ambiguous`` included."""
        return {"id": self.id, "data": self.data, "scale": self.scale, "seed": self.seed,
                "keys": dict(sorted(self.keys.items())), "part": self.part, "code": self.code,
                "ambiguous": self.ambiguous,
                "figures": {name: _json_number(value) for name, value in sorted(self.figures.items())}}  # fmt: skip


def shortened(value: float) -> float:
    """The value with ``DIGITS`` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _json_number(value: float) -> float | None:
    """The value as JSON has it: an integer where it is one, null for NaN."""
    short = shortened(value)
    if isnan(short):
        return None
    return int(short) if short.is_integer() else short


def lines(runs: Iterable[Measurement]) -> str:
    """The text of runs.jsonl: jobs with the same figures together, of these those of one data set, seeds below each
    other."""

    def order(run: Measurement) -> tuple[list[str], str, str, str, str, int, str]:
        keys = json.dumps(run.keys, sort_keys=True)
        return sorted(run.figures), run.data, run.scale, keys, run.part, run.seed, run.id

    text, above = "", {name: _compact(value) for name, value in _FIRST.items()}
    for run in sorted(runs, key=order):
        content = run.content()
        figures = content.pop("figures")
        content |= {"columns": list(figures), "figures": list(figures.values())}
        shared = {name: _compact(content[name]) for name in _FIRST}  # as text: True is equal to 1
        text += _compact({name: value for name, value in content.items() if shared.get(name) != above.get(name, "")})
        text += "\n"
        above = shared
    return text


def _compact(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def read(path: Path) -> dict[str, Measurement]:
    """The jobs of a runs.jsonl by id; none of a file that is not there.

    Raises:
        UserError: a line is broken or repeated; names the file and the line.
    """
    runs: dict[str, Measurement] = {}
    above = _FIRST
    texts = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    for number, line in enumerate(texts, start=1):
        if not line:
            continue
        where = f"{path}, line {number}"
        run, above = _measurement(line, above, where)
        if run.id in runs:
            raise UserError(f"{where}: {run.id} was there before: delete one of the two lines")
        runs[run.id] = run
    return runs


def _measurement(line: str, above: Mapping[str, Any], where: str) -> tuple[Measurement, Mapping[str, Any]]:
    """The job of a line, and what the next line may share with it."""
    ways_out = "mend the line, delete it, or take the file from git"
    try:
        content = json.loads(line)
        if isinstance(content["figures"], list):
            content = {**above, **content}
            content["figures"] = dict(zip(content["columns"], content["figures"], strict=True))
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
        raise UserError(f"{where}: id {written} is not that of its keys: write {run.id}, there and in tables.json")
    return run, {name: content.get(name, first) for name, first in {**_FIRST, "columns": list(figures)}.items()}
