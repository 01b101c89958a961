"""The page of times, from the record."""

import statistics
from typing import Any

from evals.speed.kept_models.sides import SIDES
from evals.speed.kept_models.work import BATCH, CLIENTS, METHODS, PAIRS, specs
from evals.speed.machine import IDLE_PERCENT
from evals.speed.table import Spread, number
from fedscale_ext import models

GOAL = 0.4  # ours of HtFLlib's seconds
_TITLES = ("method", "side", "s/round", "min-max", "ours/side", "CPU s/round", "ours/side, CPU", "all MB", "load")


def ratio(lines: list[dict[str, Any]], side: str, figure: str) -> Spread | None:
    """Ours by a side's in each repetition that has both, from the lines of a pair and a method."""
    by_side = {
        name: {line["repetition"]: line[figure] for line in lines if line["side"] == name} for name in ("ours", side)
    }
    both = sorted(by_side["ours"].keys() & by_side[side].keys())
    return Spread.of(by_side["ours"][each] / by_side[side][each] for each in both)


def row(lines: list[dict[str, Any]], method: str, side: str) -> list[str]:
    """A row of the table; ``lines`` are those of a pair and a method."""
    mine = [line for line in lines if line["side"] == side]
    seconds, load = (Spread.of(line[name] for line in mine) for name in ("median_s", "load_average"))
    assert seconds is not None and load is not None
    ratios = ["-", "-"] if side == "ours" else [_ratio(lines, side, name) for name in ("median_s", "cpu_s_per_round")]
    cpu, memory = (
        number(statistics.median(line[name] for line in mine)) for name in ("cpu_s_per_round", "peak_mb_sum")
    )
    return [method, SIDES[side], *seconds.cells(), ratios[0], cpu, ratios[1], memory, load.cells()[1]]


def _ratio(lines: list[dict[str, Any]], side: str, figure: str) -> str:
    spread = ratio(lines, side, figure)
    return "-" if spread is None else f"{number(spread.median)} ({spread.cells()[1]})"


def page(lines: list[dict[str, Any]]) -> str:
    """Markdown from the lines of the record."""
    good = {
        tuple(line[name] for name in ("repetition", "pair", "method", "side")): line
        for line in lines
        if line["status"] == "ok"
    }
    measured = list(good.values())
    text = [
        "# Clients that keep their models: measured beside HtFLlib",
        "",
        "Written by `python -m evals.speed.kept_models` from [times.jsonl](times.jsonl). "
        f"{CLIENTS} clients, all in every round, 20 steps of SGD on batches of {BATCH}, generated data (noise). "
        "[README](README.md) says what each side does. Ratios are taken within a repetition. Their median and range "
        "follow.",
    ]
    busy = [line for line in measured if line["busy_percent"] > IDLE_PERCENT]
    if busy:
        text += [
            "",
            f"{len(busy)} of {len(measured)} measurements ran beside other work (the column load). Two processes then "
            "get more of a machine than one does, and threads that wait for each other lose most. Processor seconds "
            "suffer less.",
        ]
    for pair in PAIRS:
        of_pair = [line for line in measured if line["pair"] == pair]
        if not of_pair:
            continue
        macs = " and ".join(f"{models.cost(spec).forward_macs / 1e6:.2g}" for spec in specs(pair, (1, 28, 28), 62))
        text += ["", f"## {pair}: {macs} MMACs per sample", "", _line(_TITLES), "|" + "---|" * len(_TITLES)]
        for method in METHODS:
            found = [line for line in of_pair if line["method"] == method]
            present = [side for side in SIDES if any(line["side"] == side for line in found)]
            text += [_line(row(found, method, side)) for side in present]
    commits = sorted({line["htfllib"] for line in measured} - {""})
    dates = sorted({line["date"] for line in measured})
    versions = ", ".join(sorted({line["torch"] for line in measured}))
    when = " to ".join(dict.fromkeys(dates[:1] + dates[-1:]))
    about = f"HtFLlib {', '.join(commits) or '-'}, torch {versions or '-'}, {when}."
    text += ["", f"{about} The goal is {GOAL} of HtFLlib's time for `local` and `fedproto`.", ""]
    return "\n".join(text)


def _line(texts: Any) -> str:
    return "| " + " | ".join(texts) + " |"
