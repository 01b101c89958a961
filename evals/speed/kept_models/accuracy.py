"""Accuracy of methods whose clients keep their models: ours beside HtFLlib's, on the same clients and networks.

    python -m evals.speed.kept_models.accuracy --htfllib HtFLlib --data fashionmnist.npz
    python -m evals.speed.kept_models.accuracy --page

Both sides have the same clients, training and test samples, networks, initial weights, learning rate and rounds. Each
run is a line of accuracy.jsonl. One that succeeded is not made again. The page is accuracy.md beside it.
"""

import statistics
import sys
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from evals.speed.command import exit_code
from evals.speed.kept_models import sides
from evals.speed.kept_models.__main__ import parser
from evals.speed.kept_models.data import ALPHA, TEST, TRAIN, fashion
from evals.speed.kept_models.work import BATCH, CLIENTS, METHODS, PAIRS, RATE, Work
from fedscale_ext.core.errors import UserError

RECORD = Path(__file__).with_name("accuracy.jsonl")
LAST = 5  # rounds at the end that a run's accuracy is the mean of
LIMIT = 2.0  # points
TITLES = {"htfllib1": "HtFLlib", **{side: title for side, (title, _) in sides.CHANGED.items()}}


def final(line: dict[str, Any]) -> float:
    """A run's accuracy, %: mean over the last rounds of the mean over clients."""
    return 100 * statistics.mean(value for _, value in line["accuracy"][-LAST:])


def page(lines: list[dict[str, Any]]) -> str:
    """Markdown from the lines of the record."""
    found = {
        (line["method"], line["pair"], line["rounds"], line["seed"], line["side"]): line
        for line in lines
        if line["status"] == "ok"
    }
    titles = [
        "method",
        "side",
        "networks",
        "rounds",
        "seeds",
        "side %",
        "ours %",
        "ours - side, each seed",
        f"within {LIMIT:g}",
    ]
    text = [
        "# Clients that keep their models: accuracy beside HtFLlib",
        "",
        "Written by `python -m evals.speed.kept_models.accuracy` from [accuracy.jsonl](accuracy.jsonl). "
        "[README](README.md) says what is equal and why sides part. "
        f"Fashion-MNIST: {CLIENTS} clients with {TRAIN} training and {TEST} test samples each, mixes of classes from "
        f"Dirichlet({ALPHA}) drawn by the seed. All clients train an epoch a round, SGD ({RATE}), batches of {BATCH}. "
        f"A run's accuracy is the mean over clients, each on its own test samples, and over the last {LAST} rounds.",
        "",
        "| " + " | ".join(titles) + " |",
        "|" + "---|" * len(titles),
    ]
    groups = sorted(
        {each[:3] for each in found}, key=lambda each: (METHODS.index(each[0]), PAIRS.index(each[1]), each[2])
    )
    for group, side in product(groups, TITLES):
        seeds = sorted(
            each[3] for each in found if each[:3] == group and each[4] == side and (*each[:4], "ours") in found
        )
        if not seeds:
            continue
        theirs, ours = ([final(found[(*group, seed, name)]) for seed in seeds] for name in (side, "ours"))
        apart = [one - other for one, other in zip(ours, theirs, strict=True)]
        cells = [group[0], TITLES[side], group[1], str(group[2]), ", ".join(map(str, seeds))]
        cells += [f"{statistics.mean(values):.1f}" for values in (theirs, ours)]
        cells += [", ".join(f"{each:+.1f}" for each in apart), "yes" if abs(statistics.mean(apart)) <= LIMIT else "no"]
        text.append("| " + " | ".join(cells) + " |")
    text.append("")
    return "\n".join(text)


def main(argv: list[str] | None = None) -> int:
    """Run the command; its exit code."""
    return exit_code(lambda: _work(argv), "stopped; the same command goes on from here")


def _work(argv: list[str] | None) -> None:
    out = Console()
    tested = [side for side in (*sides.SIDES, *sides.CHANGED) if side != "limit"]
    made = parser(__doc__, RECORD, list(METHODS), ["ours", "htfllib1"], tested)
    made.set_defaults(rounds=20)
    made.add_argument(
        "--data", type=Path, metavar="FILE", help="Fashion-MNIST as npz: x_train, y_train, x_test, y_test"
    )
    made.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help="default: 1 2 3")
    made.add_argument("--pair", choices=PAIRS, default="small", help="default: small")
    given = made.parse_args(argv)
    peers = (given.peers or given.work / "peers").absolute()
    if given.rounds < 1:
        raise UserError("--rounds must be at least 1")
    if not given.page:
        if given.data is None:
            raise UserError("--data must name Fashion-MNIST as an npz")
        sides.check(given.sides, given.htfllib, peers)
        done = {(line["seed"], line["method"], line["side"], line["pair"], line["rounds"])
                for line in sides.read(given.record) if line["status"] == "ok"}  # fmt: skip
        for seed, method, side in product(given.seeds, given.methods, given.sides):
            if (seed, method, side, given.pair, given.rounds) in done:
                continue
            data = fashion(given.work / f"kept-fashion-{seed}", given.data, seed)
            work = Work(
                method,
                given.pair,
                given.rounds,
                seed,
                data,
                given.work / "runs" / f"accuracy-{method}-{side}",
                tested=True,
            )
            result = sides.measured(side, work, given.htfllib, peers, 0.0)
            asked = {"seed": seed, "method": method, "side": side, "pair": given.pair, "rounds": given.rounds}
            kept = {name: result[name] for name in ("status", "accuracy", "date", "torch") if name in result}
            line = {**asked, "htfllib": sides.commit(given.htfllib), **kept}
            sides.append(given.record, line)
            told = f"{final(line):.1f} %" if line["status"] == "ok" else line["status"]
            out.print(f"seed {seed} {method} {side}: {told}", markup=False, highlight=False, soft_wrap=True)
    given.record.with_suffix(".md").write_text(page(sides.read(given.record)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
