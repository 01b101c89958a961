"""From measurements to the table: medians, spreads, ratios, for the terminal and for the README."""

import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from evals.speed.rows import ROWS
from fedscale_ext.driver.tables import print_table

TITLES = ("row", "s/round", "min-max", "ours/row", "min-max", "CPU s/round", "largest MB", "all MB")
_EMPTY = "-"


@dataclass(frozen=True)
class Spread:
    """Median and range of a figure over repetitions."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """None where there is no value."""
        listed = list(values)
        return cls(statistics.median(listed), min(listed), max(listed)) if listed else None

    def cells(self) -> tuple[str, str]:
        return number(self.median), f"{number(self.low)}-{number(self.high)}" if self.low < self.high else _EMPTY


def number(value: float) -> str:
    """Three digits that count, whole from a thousand on."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def select(lines: Iterable[dict[str, Any]], model: str, row: str) -> dict[int, dict[str, Any]]:
    """The last measurement of each repetition."""
    wanted = (line for line in lines if line.get("model") == model and line.get("row") == row)
    return {line["repetition"]: line for line in wanted}


def ratios(lines: list[dict[str, Any]], model: str, row: str) -> list[float]:
    """Our seconds per round over the row's, in each repetition that has both."""
    ours, theirs = select(lines, model, "ours"), select(lines, model, row)
    both = [
        repetition
        for repetition in sorted(set(ours) & set(theirs))
        if ours[repetition]["status"] == theirs[repetition]["status"] == "ok"
    ]
    return [ours[repetition]["median_s"] / theirs[repetition]["median_s"] for repetition in both]


def cells(lines: list[dict[str, Any]], model: str, row: str) -> tuple[str, ...]:
    """A row of the table; one that never ran says why in the place of its seconds."""
    found = select(lines, model, row)
    good = [line for line in found.values() if line["status"] == "ok"]
    title = ROWS[row].title
    if not good:
        reason = next((line["status"] for line in found.values()), "not measured yet")
        return (title, reason, *[_EMPTY] * (len(TITLES) - 2))
    seconds = Spread.of(line["median_s"] for line in good)
    ratio = Spread.of(ratios(lines, model, row)) if row != "ours" else None
    costs = (statistics.median(line[name] for line in good) for name in ("cpu_s_per_round", "peak_mb", "peak_mb_sum"))
    assert seconds is not None
    return (title, *seconds.cells(), *(ratio.cells() if ratio else (_EMPTY, _EMPTY)), *map(number, costs))


def remarks(lines: list[dict[str, Any]], model: str, rows: list[str]) -> list[str]:
    """What the table's columns do not hold: our start and total, and measurements that failed."""
    said = []
    good = [line for line in select(lines, model, "ours").values() if line["status"] == "ok"]
    if good:
        middle = {
            name: statistics.median(line[name] for line in good)
            for name in ("first_round_s", "total_s", "between_rounds_s")
        }
        peaks: dict[str, float] = {}
        for line in good:
            for role, peak in line["peaks_mb"]:
                if role.startswith(("aggregator", "executor")):
                    peaks[role] = max(peak, peaks.get(role, 0.0))
        each = ", ".join(f"{role} {peak:.0f} MB" for role, peak in sorted(peaks.items()))
        said.append(
            f"our job: first round begins {middle['first_round_s']:.1f} s after the command, all of it takes "
            f"{middle['total_s']:.1f} s ({good[0]['rounds'] + 2} rounds, two of them with tests), "
            f"{max(0.0, middle['between_rounds_s']):.3f} s between two rounds are not in s/round; peaks: {each}"
        )
    for row in rows:
        for repetition, line in sorted(select(lines, model, row).items()):
            if line["status"] != "ok":
                said.append(f"{ROWS[row].title}, repetition {repetition + 1}: {line['status']}")
    return said


def show(out: Console, lines: list[dict[str, Any]], models: list[str], rows: list[str]) -> None:
    """Print the tables; aligned plain text where there is no terminal."""
    for model in models:
        out.print(f"\n{model}", markup=False, highlight=False)
        print_table(out, TITLES, [cells(lines, model, row) for row in rows])
        for remark in remarks(lines, model, rows):
            out.print(remark, markup=False, highlight=False, soft_wrap=True)


def markdown(
    lines: list[dict[str, Any]], models: list[str], rows: list[str], machine: dict[str, Any], command: str
) -> str:
    """The page results.md."""
    measured = [line for line in lines if line.get("status") == "ok"]
    loads = Spread.of(line["busy_percent"] for line in measured)
    versions = ", ".join(f"{name} {text}" for name, text in machine["versions"].items())
    page = [
        "# Speed: measured",
        "",
        f"`{command}`: 100 clients, 20 steps, batch 10, plain SGD, generated data (noise). s/round is the median of "
        "a measurement's rounds, and of that the median and range over repetitions; ratios are taken within each "
        "repetition. Memory counts shared pages in every process.",
        "",
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gib']} GiB, {machine['system']}; "
        f"load average at the start {machine['load_average']}; {versions}."
        + (
            f" Processors in use before a measurement: {loads.median:.0f} % "
            f"({loads.low:.0f}-{loads.high:.0f})." if loads else ""
        ),
    ]  # fmt: skip
    for model in models:
        page += ["", f"## {model}", "", _line(TITLES), "|" + "---|" * len(TITLES)]
        page += [_line(cells(lines, model, row)) for row in rows]
        page += ["", *(f"* {remark}" for remark in remarks(lines, model, rows))]
    page += ["", "## Rows", "", *(f"* {ROWS[row].title}: {ROWS[row].note}." for row in rows), ""]
    return "\n".join(page)


def write(path: Path, text: str) -> None:
    """Put a page in place in one step."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _line(texts: tuple[str, ...]) -> str:
    return "| " + " | ".join(text.replace("|", "/") for text in texts) + " |"
