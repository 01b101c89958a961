"""Seconds per round of clients that keep their models: our whole job beside HtFLlib, measured in turn.

examples:
  python -m evals.speed --install-peers                          HtFLlib's packages, once
  git clone https://github.com/TsingZ0/HtFLlib                   HtFLlib itself
  python -m evals.speed.kept_models --htfllib HtFLlib            everything that is not recorded yet
  python -m evals.speed.kept_models --page                       the page alone, from the record

Each measurement is a line of times.jsonl. One that succeeded is not made again. The page is times.md beside it.
"""

import argparse
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from evals.speed.__main__ import HERE, Parser
from evals.speed.command import exit_code
from evals.speed.kept_models import sides
from evals.speed.kept_models.data import noise
from evals.speed.kept_models.times import page
from evals.speed.kept_models.work import METHODS, PAIRS, Work
from fedscale_ext.core.errors import UserError

RECORD = Path(__file__).with_name("times.jsonl")


def parser(
    about: str | None, record: Path, methods: list[str], side_names: list[str], choices: Iterable[str]
) -> Parser:
    """Options that times and accuracies have in common; ``choices`` are the sides that one may ask for."""
    made = Parser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--htfllib", type=Path, metavar="DIR", help="a checkout of HtFLlib")
    made.add_argument("--methods", nargs="+", choices=METHODS, default=methods, help=f"default: {' '.join(methods)}")
    made.add_argument(
        "--sides", nargs="+", choices=list(choices), default=side_names, help=f"default: {' '.join(side_names)}"
    )
    made.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds that count")
    made.add_argument("--work", type=Path, default=HERE / "work", metavar="DIR", help="data and runs")
    made.add_argument("--peers", type=Path, metavar="DIR", help="the peers' environments (WORK/peers)")
    made.add_argument(
        "--record", type=Path, default=record, metavar="FILE", help=f"default: {record.name} beside this file"
    )
    made.add_argument("--page", action="store_true", help="write the page from the record, and measure nothing")
    return made


def todo(given: argparse.Namespace, lines: list[dict[str, Any]]) -> list[tuple[int, str, str, str]]:
    """(repetition, pair, method, side) of what is not measured yet; each repetition begins with another side."""
    done = {key(line) for line in lines if line["status"] == "ok"}
    planned = []
    for repetition, pair, method in product(range(1, given.repetitions + 1), given.pairs, given.methods):
        turn = (repetition - 1) % len(given.sides)
        in_turn = given.sides[turn:] + given.sides[:turn]
        planned += [(repetition, pair, method, side) for side in in_turn if side != "limit" or method in sides.LIMITED]
    return [each for each in planned if (*each, given.rounds) not in done]


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    """What a line of the record measured."""
    return tuple(line[name] for name in ("repetition", "pair", "method", "side", "rounds"))


def main(argv: list[str] | None = None) -> int:
    """Run the command; its exit code."""
    return exit_code(lambda: _work(argv), "stopped; the same command goes on from here")


def _work(argv: list[str] | None) -> None:
    out = Console()
    made = parser(__doc__, RECORD, ["local", "fedproto"], list(sides.SIDES), sides.SIDES)
    made.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS), help=f"default: {' '.join(PAIRS)}")
    made.add_argument("--repetitions", type=int, default=3, metavar="N", help="measurements of each side (3)")
    made.add_argument("--idle", type=float, default=60.0, metavar="S", help="longest wait for an idle machine (60)")
    given = made.parse_args(argv)
    peers = (given.peers or given.work / "peers").absolute()
    if given.rounds < 1 or given.repetitions < 1:
        raise UserError("--rounds and --repetitions must be at least 1")
    if not given.page:
        sides.check(given.sides, given.htfllib, peers)
        data = noise(given.work / "kept-noise")
        planned = todo(given, sides.read(given.record))
        for number, (repetition, pair, method, side) in enumerate(planned, start=1):
            work = Work(method, pair, given.rounds, 1, data, given.work / "runs" / f"kept-{pair}-{method}-{side}")
            found = sides.measured(side, work, given.htfllib, peers, given.idle)
            asked = {"repetition": repetition, "pair": pair, "method": method, "side": side, "rounds": given.rounds}
            sides.append(given.record, {**asked, "htfllib": sides.commit(given.htfllib), **found})
            told = f"{found['median_s']:.2f} s/round" if found["status"] == "ok" else found["status"]
            said = f"{number}/{len(planned)} {pair} {method} {side} {repetition}: {told}, load {found['load_average']}"
            out.print(said, markup=False, highlight=False, soft_wrap=True)
    given.record.with_suffix(".md").write_text(page(sides.read(given.record)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
