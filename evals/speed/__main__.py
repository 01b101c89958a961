"""Seconds per round of our job, the limit and the peers on the same work, measured in turn.

examples:
  python -m evals.speed --install-peers              the peers' environments, once, in evals/speed/work/peers
  python -m evals.speed                              everything: 3 models x 6 rows x 5 repetitions
  python -m evals.speed --resume                     go on after an interruption
  python -m evals.speed --models cnn_small --rows ours limit --repetitions 3
  python -m evals.speed --profile --models cnn_small where our rounds' time goes

Measurements are appended to WORK/results.jsonl; the table is printed and written to evals/speed/results.md.
"""

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from evals.speed import machine, peers, phases, results, table
from evals.speed.command import Parser, exit_code
from evals.speed.data import prepare
from evals.speed.measure import folder_of, measure
from evals.speed.rows import ROWS
from evals.speed.task import CLASSES, PROCESSES, SHAPE
from fedscale_ext.core.errors import UserError, did_you_mean
from fedscale_ext.models import named_spec

HERE = Path(__file__).resolve().parent
MODELS = ["cnn_small", "cnn_leaf", "nasbench201_base"]


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked; UserError in one sentence for what is wrong in it."""
    parser = Parser(
        prog="python -m evals.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="MODEL", help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), metavar="ROW", help=f"default: {' '.join(ROWS)}")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="measurements of each row (5)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="timed rounds in a measurement (3)")
    parser.add_argument("--work", type=Path, default=HERE / "work", metavar="DIR", help="data, runs and results")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="the peers' environments (WORK/peers)")
    parser.add_argument("--idle", type=float, default=60.0, metavar="S", help="longest wait for an idle machine (60)")
    parser.add_argument("--resume", action="store_true", help="keep earlier measurements, make what is missing")
    parser.add_argument("--profile", action="store_true", help="run our job once per model, show its phases")
    parser.add_argument(
        "--install-peers", type=Path, nargs="?", const=Path(), metavar="DIR", help="make environments, then end"
    )
    given = parser.parse_args(argv)
    for name in given.rows:
        if name not in ROWS:
            raise UserError(f"there is no row {name!r}{did_you_mean(name, ROWS)}; rows are {', '.join(ROWS)}")
    for model in given.models:
        named_spec(model, SHAPE, CLASSES)
    for name, values in (("model", given.models), ("row", given.rows)):
        if len(set(values)) < len(values):
            raise UserError(f"a {name} is named twice")
    if given.repetitions < 1 or given.rounds < 1 or given.idle < 0:
        raise UserError("--repetitions and --rounds must be at least 1, --idle at least 0")
    given.work = given.work.absolute()
    given.peers = (given.peers or given.work / "peers").absolute()
    return given


def compare(given: argparse.Namespace, out: Console, command: str) -> None:
    """Measure what is not measured yet, then print and write the table."""
    path = given.work / "results.jsonl"
    if not given.resume:
        results.start_anew(path)
    results.append(path, {"machine": machine.describe(given.peers), "command": command})
    done = results.finished(results.read(path))
    todo = [key for key in results.plan(given.models, given.rows, given.repetitions, given.rounds) if key not in done]
    for number, key in enumerate(todo, start=1):
        model, row, repetition, rounds = key
        figures = measure(row, model, rounds, work=given.work, peers=given.peers, idle_s=given.idle)
        line: dict[str, Any] = {"model": model, "row": row, "repetition": repetition, "rounds": rounds, **figures}
        results.append(path, line)
        said = f"{figures['median_s']:.2f} s/round" if figures["status"] == "ok" else figures["status"]
        load = f", load {figures['load_average']}" if "load_average" in figures else ""
        out.print(
            f"{number}/{len(todo)} {model} {row} repetition {repetition + 1}: {said}{load}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    lines = results.read(path)
    wanted = [line for line in lines if "row" in line]
    start = next(line for line in lines if "machine" in line)
    table.show(out, wanted, given.models, given.rows)
    page = table.markdown(wanted, given.models, given.rows, start["machine"], start["command"])
    table.write(given.work / "results.md" if given.work != HERE / "work" else HERE / "results.md", page)


def profile(given: argparse.Namespace, out: Console) -> None:
    """Run our job once per model and show where its rounds' time went."""
    for model in given.models:
        done = measure("ours", model, given.rounds, work=given.work, peers=given.peers, idle_s=given.idle)
        if done["status"] != "ok":
            raise UserError(f"our job with {model} {done['status']}")
        phases.show(out, model, phases.read(folder_of(given.work, model, "ours")), PROCESSES)


def without_places(words: list[str]) -> str:
    """The command for the page: anybody's folders are DIR there."""
    shown = ["python", "-m", "evals.speed"]
    for word in words:
        name, equals, _ = word.partition("=")
        if shown[-1] in ("--work", "--peers"):
            shown.append("DIR")
        else:
            shown.append(f"{name}=DIR" if equals and name in ("--work", "--peers") else word)
    return shlex.join(shown)


def main(argv: list[str] | None = None) -> int:
    """Run the command; its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what is being measured ends too
    return exit_code(lambda: _work(argv), "stopped; --resume goes on from here")


def _work(argv: list[str] | None) -> None:
    out, given = Console(), arguments(argv)
    if given.install_peers is not None:
        folder = given.peers if given.install_peers == Path() else given.install_peers.absolute()
        peers.install(folder, lambda text: out.print(text, markup=False, highlight=False, soft_wrap=True))
        return
    prepare(given.work / "data")
    if given.profile:
        profile(given, out)
    else:
        compare(given, out, without_places(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
