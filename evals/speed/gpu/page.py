"""The page of a run, made from its results alone."""

from collections.abc import Iterable
from typing import Any

from evals.speed.gpu import convolutions, fedtrans, rounds, server_steps, sweep
from evals.speed.table import number
from evals.speed.task import CLIENTS

Lines = list[dict[str, Any]]
# what identifies a measurement
_WHAT = ("check", "model", "row", "method", "device", "precision", "channels", "side", "clients", "executors", "work")


def page(lines: Lines) -> str:
    """Markdown of all that was measured, and of what was left out and why."""
    machine = next(line for line in lines if line["part"] == "machine")
    parts = [
        ["# On a GPU", "", f"`{machine['command']}`", "", _machine(machine)],
        ["## Goals", "", *_goals(lines)],
        ["## Correctness", "", *_correctness(of(lines, "correctness"))],
        [f"## Seconds per round of {CLIENTS} participants", "", *_rounds(of(lines, rounds.PART))],
        ["## Ways to convolve", "", *_convolutions(of(lines, convolutions.PART))],
        ["## Server steps", "", *_server_steps([*of(lines, server_steps.PART), *of(lines, server_steps.CPU_PART)])],
        ["## FedTrans at the paper's size", "", *_fedtrans(of(lines, fedtrans.PART))],
        ["## A sweep on one GPU", "", *_sweep(of(lines, sweep.PART))],
        ["## Left out", "", *_left_out(lines)],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def of(lines: Lines, part: str) -> Lines:
    """The measurements of a part that have figures."""
    return [line for line in lines if line["part"] == part and "left_out" not in line]


def correct(line: dict[str, Any]) -> bool:
    """Whether a check held; a distance that is not a number did not."""
    return bool(line["distance"] <= line["tolerance"])


def against_loop(lines: Lines, model: str, row: str, precision: str) -> float | None:
    """How many times as fast as the plain loop a row trained a client; None where one of both was not measured."""
    seconds = [_per_client(lines, model, each, precision) for each in ("loop", row)]
    return seconds[0] / seconds[1] if seconds[0] and seconds[1] else None


def _per_client(lines: Lines, model: str, row: str, precision: str) -> float | None:
    of_row = {"model": model, "row": row, "precision": precision}
    for line in of(lines, rounds.PART):
        if of_row.items() <= line.items():
            return float(line["best_s"]) / int(line["clients"])
    return None


def _machine(line: dict[str, Any]) -> str:
    return (
        f"{line['device']}, {line['processor']}, {line['cores']} cores, torch {line['torch']}, CUDA {line['cuda']}; "
        f"{line['date']}, {line['seconds']:.0f} s at most. All data are generated. TF32 is on in float32 convolutions, "
        "torch's default, except in checks that say otherwise."
    )


def _goals(lines: Lines) -> list[str]:
    model, row = rounds.GOAL_MODEL, str(CLIENTS)
    ratio = against_loop(lines, model, row, "float32")
    checks = of(lines, "correctness")
    return [
        f"- Checks of correctness that hold: {sum(map(correct, checks))} of {len(checks)}.",
        f"- `{model}`, {row} participants, float32, {rounds.GOAL:g} times the plain loop: "
        + ("not measured." if ratio is None else f"{number(ratio)} times. {_verdict(ratio >= rounds.GOAL)}"),
        f"- FedTrans at the paper's size in {fedtrans.GOAL_S:.0f} s, whole job, "
        f"estimated from {fedtrans.ROUNDS} rounds: {_whole_jobs(lines)}",
    ]


def _whole_jobs(lines: Lines) -> str:
    """The fewest seconds of FedTrans's whole job in each precision, and whether its goal is met."""
    jobs = [line for line in of(lines, fedtrans.PART) if "whole_s" in line]
    fewest = {
        one["precision"]: min(job["whole_s"] for job in jobs if job["precision"] == one["precision"]) for one in jobs
    }
    if not fewest:
        return "not measured."
    figures = ", ".join(f"{number(seconds)} s in {precision}" for precision, seconds in fewest.items())
    met = [precision for precision, seconds in fewest.items() if seconds <= fedtrans.GOAL_S]
    where = f" in {met[0]} alone" if 0 < len(met) < len(fewest) else ""
    return f"{figures}. The goal is {'' if met else 'not '}met{where}."


def _verdict(held: bool) -> str:
    return "The goal is met." if held else "The goal is not met."


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    titles, body = list(head), [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", *body] if body else ["Nothing was measured."]


def _correctness(lines: Lines) -> list[str]:
    rows = (
        (line["check"], line["model"], line["precision"], f"{line['distance']:.1e}", f"{line['tolerance']:.0e}",
         "yes" if correct(line) else "**no**")
        for line in lines
    )  # fmt: skip
    return [
        "Distances are norms of the difference, relative to the norm of the change by training: the largest of three "
        "clients after five steps. For server steps they are relative to the result. `correctness.py` gives reasons "
        "for the tolerances.",
        "",
        *_table(("these agree", "model", "precision", "distance", "tolerance", "holds"), rows),
    ]


def _rounds(lines: Lines) -> list[str]:
    def cells(line: dict[str, Any]) -> tuple[str, ...]:
        share = CLIENTS / line["clients"]
        ratio = against_loop(lines, line["model"], line["row"], line["precision"])
        row = line["row"] if line["row"] == "loop" else f"cohorts of {line['row']}"
        speedup = "-" if ratio is None else f"{number(ratio)}x"
        return (line["model"], line["precision"], row, number(line["best_s"] * share),
                number(line["worst_s"] * share), speedup, _memory(line))  # fmt: skip

    return [
        "20 steps of a client on batches of 10. `loop` is the plain PyTorch loop, client after client.",
        "",
        *_table(("model", "precision", "row", "best s", "worst s", "against the loop", "GPU memory, MB"),
                map(cells, lines)),
    ]  # fmt: skip


def _convolutions(lines: Lines) -> list[str]:
    by_size: dict[tuple[Any, ...], dict[str, float]] = {}
    for line in lines:
        size = (line["precision"], line["channels"], line["side"], line["clients"])
        by_size.setdefault(size, {})[line["row"]] = line["ms"]
    rows = (
        (*map(str, size), *(number(ways[way]) if way in ways else "-" for way in convolutions.WAYS))
        for size, ways in by_size.items()
    )
    return [
        f"Milliseconds of a 3x3 convolution of a cohort on batches of {convolutions.BATCH}, forward and backward. "
        "Executors take the first way.",
        "",
        *_table(("precision", "channels", "side", "clients", *convolutions.WAYS), rows),
    ]


def _memory(line: dict[str, Any]) -> str:
    return number(line["gpu_mb"]) if "gpu_mb" in line else "-"


def _server_steps(lines: Lines) -> list[str]:
    rows = (
        (line["method"], line["work"], line["device"], number(line["first_s"]), number(line["seconds"]), _memory(line))
        for line in lines
    )
    return _table(("method", "work", "device", "first round, s", "last round, s", "GPU memory, MB"), rows)


def _fedtrans(lines: Lines) -> list[str]:
    failures = [f"{line['work']}: {line['failed']}." for line in lines if "failed" in line]
    measured = [line for line in lines if "stages" in line]
    if not measured:
        return failures or ["Nothing was measured."]
    rows = (
        (line["precision"], f"{line['executors']}{_under_service(line)}", models, f"{stage['rounds']:.0f}",
         number(stage["seconds"]), number(stage["mean_s"]), number(stage["GMACs"]),
         number(stage["test_s"]) if "test_s" in stage else "-")
        for line in measured
        for models, stage in line["stages"].items()
    )  # fmt: skip
    whole = " and ".join(
        f"{number(line['whole_s'])} s in {line['precision']} with {_executors(line)}"
        for line in measured
        if "whole_s" in line
    )
    whole = whole and f"2,000 rounds at the fastest growth, at the mean seconds per round: {whole}."
    scale = (
        f"{measured[0]['writers']} writers are drawn. Seconds of an evaluation are scaled up to the paper's "
        f"{fedtrans.PAPER_WRITERS:,}, but not those of BatchNorm's statistics, which 100 clients of each model measure."
        f" A checkpoint is written every {fedtrans.CHECKPOINT} rounds."
    )
    peak = max(line["peak_mb_sum"] for line in measured)
    memory = f"Peak memory of all processes, on the CPU's side: {number(peak)} MB."
    head = ("precision", "executors", "models", "measured rounds", "median s per round", "mean s per round",
            "training GMACs per round", "s per evaluation of all clients")  # fmt: skip
    return [*_table(head, rows), "", " ".join(filter(None, [scale, whole, memory, *failures]))]


def _sweep(lines: Lines) -> list[str]:
    failures = [f"{line['row']}: {line['failed']}." for line in lines if "row" in line and "failed" in line]
    rows = [
        (line["row"], str(line["jobs"]), str(line["rounds"]), str(line["at_once"]), number(line["seconds"]))
        for line in lines
        if "at_once" in line
    ]
    return [
        *_table(("jobs of FedAvg on digits", "jobs", "rounds of each", "at first", "seconds"), rows),
        "",
        "As many as fit: a further job joins once all under way have trained a round, so that their memory is known.",
        *failures,
    ]


def _left_out(lines: Lines) -> list[str]:
    missing = [line for line in lines if "left_out" in line]
    items = (
        f"- {line['part']}, {', '.join(_of_what(line, key) for key in _WHAT if key in line)}: {line['left_out']}."
        for line in missing
    )
    return list(items) if missing else ["Nothing."]


def _of_what(line: dict[str, Any], key: str) -> str:
    return _executors(line) if key == "executors" else str(line[key])


def _executors(line: dict[str, Any]) -> str:
    executors = "one executor" if line["executors"] == 1 else f"{line['executors']} executors"
    return executors + _under_service(line)


def _under_service(line: dict[str, Any]) -> str:
    return " under MPS" if line.get("service") else ""
