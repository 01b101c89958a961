"""The claims as Markdown: a line each for the ledger, and a section each with all figures, intervals and commands."""

import re
from collections.abc import Sequence

from evals.paper.ledger import FAILS, HOLDS, OPEN, Evidence, Finding, Judged, enough
from evals.paper.orders import Order, limits, number

_SHOWN = 3  # data sets in a cell


def anchor(name: str) -> str:
    """How a heading is linked to."""
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")


def ledger_lines(judged: Sequence[tuple[str, Judged]], scale: str) -> list[str]:
    """The ledger's table: a line per claim, by the folder of its paper."""
    lines = ["| claim | outcome | figures | seeds, scale | figures and commands |", "|---|---|---|---|---|"]
    for folder, one in judged:
        link = f"[{one.name}]({folder}/ledger.md#{anchor(one.name)})"
        lines.append(f"| {one.name} | {one.outcome} | {_figures(one)} | {_seeds(one, scale)} | {link} |")
    return lines


def summary_lines(judged: Sequence[tuple[str, Judged]]) -> list[str]:
    """What each claim says, and what came out."""
    lines = ["| claim | says | came out |", "|---|---|---|"]
    return lines + [f"| {one.name} | {one.claim.says} | {came_out(one)} |" for _, one in judged]


def overview_lines(judged: Sequence[tuple[str, Judged]], titles: dict[str, str]) -> list[str]:
    """A line per paper: which claims hold, do not hold and are not decidable."""
    lines = [f"| | {HOLDS} | {FAILS} | {OPEN} |", "|---|---|---|---|"]
    for folder, title in titles.items():
        cells = [", ".join(one.name.replace(", ", " ") for at, one in judged if at == folder and one.outcome == outcome)
                 or "–" for outcome in (HOLDS, FAILS, OPEN)]  # fmt: skip
        lines.append(f"| [{title}]({folder}/ledger.md) | " + " | ".join(cells) + " |")
    return lines


def came_out(one: Judged) -> str:
    """The outcome with its reason."""
    return f"{one.outcome}: {one.reason}" if one.reason else one.outcome


def _seeds(one: Judged, scale: str) -> str:
    if one.claim.script == "hypernetwork_cost":
        return "the paper's sizes"
    counts = sorted({evidence.seeds for evidence in one.evidence}) or [0]
    number_of_seeds = (
        f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seed{'s' * (counts[0] != 1)}"
    )
    return f"{number_of_seeds}, {scale}"


def _figures(one: Judged) -> str:
    """The difference that decides, on each data set that has enough seeds, and why it is not decidable."""
    decided = [evidence for evidence in one.evidence if evidence.outcome != OPEN or enough(evidence)]
    cells = [_deciding(evidence, one.reason) for evidence in decided[:_SHOWN]]
    if len(decided) > _SHOWN:
        cells.append(f"{len(decided) - _SHOWN} more")
    return "; ".join([*cells, *([one.reason] if one.reason else [])])


def _deciding(evidence: Evidence, reason_of_claim: str) -> str:
    """The order that the outcome on a data set rests on: the one that fails, else the first that is open, else the
    least sure of those that hold. Its reason is left out where it is the ``known`` one of the whole claim."""
    failing = [finding for finding in evidence.findings if finding.outcome == FAILS]
    undecided = [finding for finding in evidence.findings if finding.outcome == OPEN]
    undecided.sort(key=lambda finding: finding.interval is None)
    chosen = (failing or undecided or sorted(evidence.findings, key=_sureness))[0]
    if chosen.interval is not None:
        text = f"{evidence.data} {chosen.interval.mean:+.3g} ± {chosen.interval.half:.2g}"
    elif chosen.means is not None:
        text = f"{evidence.data} {number(chosen.means[0])} to {number(chosen.means[1])} {chosen.column}"
    else:
        text = evidence.data
    return f"{text} ({chosen.short_reason})" if chosen.reason and chosen.short_reason != reason_of_claim else text


def _sureness(finding: Finding) -> float:
    between = finding.interval
    if between is None or not between.half:
        return float("inf")
    return abs(between.mean) / between.half


def section_lines(one: Judged) -> list[str]:
    """A claim's section: what it says, what came out, all figures, and the commands that gave them."""
    lines = [f"## {one.name}", "", f"{one.claim.says}. **{one.outcome}**{f': {one.reason}' if one.reason else ''}.", ""]
    if not one.evidence:
        return [*lines, f"No results of `{one.claim.script}` are recorded.", ""]
    if any(finding.order.column for evidence in one.evidence for finding in evidence.findings):
        lines += ["| data | figure | above | below | difference | 95 % interval | seeds | outcome |",
                  "|---|---|---|---|---|---|---|---|"]  # fmt: skip
        lines += ["| " + " | ".join(_cells(evidence, finding)) + " |"
                  for evidence in one.evidence for finding in evidence.findings]  # fmt: skip
    elif not one.claim.orders:
        pages = [
            f"{_linked(evidence)} ({evidence.seeds} seed{'s' * (evidence.seeds != 1)})" for evidence in one.evidence
        ]
        lines.append(f"Figures: {', '.join(pages)}.")
    for evidence in one.evidence:
        lines += [f"\n{evidence.data}: {note}." for note in evidence.notes]
    commands = list(dict.fromkeys(command for evidence in one.evidence for command in evidence.commands))
    return [*lines, "", "```bash", *commands, "```", ""]


def _cells(evidence: Evidence, finding: Finding) -> list[str]:
    order, between = finding.order, finding.interval
    outcome = f"{finding.outcome}: {finding.reason}" if finding.reason else finding.outcome
    means = ["", ""] if finding.means is None else [f" {number(mean)}" for mean in finding.means]
    below = f"{_factor(order)}{order.less}{means[1]}{_slack(order)}"
    difference = "–"
    if between is not None:
        difference = f"{between.mean:+.4g}"
    elif finding.means is not None:
        difference = f"{finding.means[0] - order.factor * finding.means[1] + order.slack:+.4g}"
    figure, above = finding.column or order.column, f"{order.more}{means[0]}"
    seeds = str(finding.seeds or "–")
    return [_linked(evidence), figure, above, below, difference, limits(between), seeds, outcome]


def _linked(evidence: Evidence) -> str:
    return f"[{evidence.data}]({evidence.page})" if evidence.page else evidence.data


def _factor(order: Order) -> str:
    return "" if order.factor == 1 else f"{order.factor:g} × "


def _slack(order: Order) -> str:
    return "" if not order.slack else f" less {order.slack:g}"
