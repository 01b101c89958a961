"""Rows of evals/claims.md from the results of a paper's scripts.

A claim is a list of orderings "figure of A > factor x figure of B - slack", looked at for each data set and seed. It
holds where all of them do everywhere, does not hold where one of them does nowhere, and is not decidable otherwise,
with fewer than two seeds, or where the mean over seeds is within the ordering's noise on a data set. A claim may leave
out rows whose figures say nothing of it, which are named; on a data set where it leaves out all, it is not decidable.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.paper.orders import Order, Row, compared, number

Claims = Mapping[str, tuple[str, Sequence[Order]]]
LeavesOut = Callable[[Sequence[Row]], Mapping[tuple[str, str], str]]  # of rows: why, by data set and label


def judged(margins: Sequence[float], seeds: int, within: bool = False) -> str:
    """Of one ordering over data sets and seeds; ``within`` its noise on one of them."""
    if seeds < 2 or not margins or within:
        return "not decidable"
    if all(margin > 0 for margin in margins):
        return "holds"
    return "does not hold" if all(margin <= 0 for margin in margins) else "not decidable"


def row(
    claim: str, orders: Sequence[Order], results: Mapping[str, Any], leaves_out: LeavesOut | None = None
) -> str | None:
    """The ledger's row from one results file; None where it lacks what the claim compares."""
    words, outcomes, seeds = [], [], 0
    unfit = {} if leaves_out is None else leaves_out(results["rows"])
    named: dict[tuple[str, str], list[str]] = {}  # what was left out, by data set and reason
    counted = set()
    for order in orders:
        margins: list[float] = []
        found, both = [], compared(order, results["rows"])
        for one in both:
            reasons = {
                label: unfit[one.data, label] for label in (order.more, order.less) if (one.data, label) in unfit
            }
            for label, reason in reasons.items():
                labels = named.setdefault((one.data, reason), [])
                labels += [] if label in labels else [label]
            if not reasons:
                found.append(one)
        if not found and (order.optional or both):
            continue
        counted |= {one.data for one in found}
        own = max((len(one.seeds) for one in found), default=0)
        seeds = max(seeds, own)
        for one in found:
            margins += one.margins
            means = [number(each["figures"][order.column]["mean"]) for each in (one.more, one.less)]
            words.append(f"{order.column}, {one.data}: {order.more} {means[0]}, {order.less} {means[1]}")
        within = any(abs(sum(one.margins)) < order.noise * len(one.margins) for one in found)
        outcomes.append(judged(margins, own, within))
    if not words and not named:
        return None
    outcomes += ["not decidable"] * bool({data for data, _ in named} - counted)
    words += [f"left out on {data}, {reason}: {', '.join(labels)}" for (data, reason), labels in named.items()]
    outcome = next((one for one in ("does not hold", "not decidable") if one in outcomes), "holds")
    commands = ", then ".join(f"`{command}`" for command in results["commands"])
    sizes = f"{seeds} seed{'s' * (seeds != 1)}, {results['scale']}"
    return f"| {claim} | {outcome} | {'; '.join(words)} | {sizes} | {commands} |"


def main(
    claims: Claims,
    results: Path,
    says: str | None,
    argv: Sequence[str] | None = None,
    leave_out: Mapping[str, LeavesOut] | None = None,
) -> None:
    """Print the rows; ``claims`` by name: the script whose results decide it, and what must be true; ``leave_out`` what
    some of them leave out."""
    parser = argparse.ArgumentParser(description=says, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("--scale", default="small")
    given = parser.parse_args(argv)
    if not any(given.results.glob(f"*_{given.scale}*.json")):
        sys.exit(f"{given.results} holds no results at scale {given.scale}: run the scripts beside this one first")
    for claim, (script, orders) in claims.items():
        for path in sorted(given.results.glob(f"{script}_{given.scale}*.json")):
            found = json.loads(path.read_text(encoding="utf-8"))
            line = row(claim, orders, found, (leave_out or {}).get(claim))
            if line is not None:
                print(line)
