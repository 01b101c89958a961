"""The claims as Markdown: a row each in the table of its paper, and a section each with all figures and commands."""

from collections.abc import Mapping, Sequence

from evals.paper.ledger import FAILS, HOLDS, MOST_WORDS, OPEN, Evidence, Finding, Judged, enough
from evals.paper.orders import Order, limits, number
from evals.paper.runs import anchor

_NOTHING = "–"
_COLUMNS = ("data", "figure", "claimed higher", "claimed lower", "difference", "95 % interval", "number of seeds",
            "verdict")  # fmt: skip


def claim_lines(judged: Sequence[tuple[str, Judged]], titles: Mapping[str, str]) -> list[str]:
    """A heading and a table for each paper: a row per claim, decided ones first."""
    lines: list[str] = []
    for folder, title in titles.items():
        of_paper = [one for name, one in judged if name == folder]
        lines += [f"## {title}", "", f"Causes and further trials: [discussion]({folder}/discussion.md).", ""]
        lines += ["| | claim | verdict | ours | paper | number of seeds |", "|---|---|---|---|---|---|"]
        lines += [_claim_row(folder, one) for verdict in (HOLDS, FAILS, OPEN) for one in of_paper
                  if one.verdict == verdict]  # fmt: skip
        lines.append("")
    return lines[:-1]


def overview_lines(judged: Sequence[tuple[str, Judged]], titles: Mapping[str, str]) -> list[str]:
    """A line per paper: which claims hold and do not hold, and how many are open."""
    lines = [f"| | {HOLDS} | {FAILS} | {OPEN} |", "|---|---|---|---|"]
    for folder, title in titles.items():
        of_paper = [one for at, one in judged if at == folder]
        named = [fitting([one.name.replace(", ", " ") for one in of_paper if one.verdict == verdict], ", ")
                 for verdict in (HOLDS, FAILS)]  # fmt: skip
        count = sum(one.verdict == OPEN for one in of_paper)
        lines.append(f"| [{title}](claims.md#{anchor(title)}) | {' | '.join(named)} | {count or _NOTHING} |")
    return lines


def fitting(parts: Sequence[str], separator: str = "; ") -> str:
    """As many parts as a cell holds, and how many more there are."""
    for count in range(len(parts), 0, -1):
        left = len(parts) - count
        text = separator.join([*parts[:count], *([f"{left} more"] if left else [])])
        if len(text.split()) <= MOST_WORDS:
            return text
    return f"{len(parts)} on the page of figures" if parts else _NOTHING


def _claim_row(folder: str, one: Judged) -> str:
    decided = [evidence for evidence in one.evidence if evidence.verdict != OPEN or enough(evidence)]
    decided = [evidence for evidence in decided if evidence.findings]
    decided.sort(key=lambda evidence: evidence.verdict != one.verdict)  # what the verdict rests on comes first
    link = f"[{one.name}]({folder}/ledger.md#{anchor(one.name)})"
    verdict = f"{one.verdict}: {one.reason}" if one.reason else one.verdict
    ours = fitting([_deciding(evidence, one.reason) for evidence in decided])
    paper = fitting([_published(evidence) for evidence in decided if _chosen(evidence).paper is not None])
    return f"| {link} | {one.claim.says} | {verdict} | {ours} | {paper} | {_seeds(one)} |"


def _seeds(one: Judged) -> str:
    if one.claim.script == "hypernetwork_cost":
        return _NOTHING
    counts = sorted({each.seeds for evidence in one.evidence for each in evidence.findings if each.seeds}) or [0]
    return f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])


def _chosen(evidence: Evidence) -> Finding:
    """The order that the verdict on a data set rests on: the one that fails, else the first that is open, else the
    least sure of those that hold."""
    failing = [finding for finding in evidence.findings if finding.verdict == FAILS]
    undecided = [finding for finding in evidence.findings if finding.verdict == OPEN]
    undecided.sort(key=lambda finding: finding.interval is None)
    return (failing or undecided or sorted(evidence.findings, key=_sureness))[0]


def _deciding(evidence: Evidence, reason_of_claim: str) -> str:
    """The figure of the order that decides; its reason is left out where it is the whole claim's."""
    chosen = _chosen(evidence)
    if chosen.interval is not None:
        mean, half = _signed(chosen.interval.mean), number(chosen.interval.half, 2)
        text = f"{evidence.data} {mean} ± {half} {_unit(chosen.column)}"
    elif chosen.means is not None:
        text = f"{evidence.data} {number(chosen.means[0])} to {number(chosen.means[1])} {_unit(chosen.column)}"
    else:
        text = evidence.data
    return f"{text} ({chosen.short_reason})" if chosen.reason and chosen.short_reason != reason_of_claim else text


def _published(evidence: Evidence) -> str:
    chosen = _chosen(evidence)
    return f"{evidence.data} {_signed(chosen.paper or 0.0)} {_unit(chosen.column)}"


def _signed(value: float) -> str:
    return number(value, 3, "+")


def _unit(column: str) -> str:
    """Of a difference between two figures of a column."""
    if column.endswith(("%", "pp")):
        return "points"
    return "MB" if column.endswith(("MB", "MB / round")) else column


def _sureness(finding: Finding) -> float:
    between = finding.interval
    if between is None or not between.half:
        return float("inf")
    return abs(between.mean) / between.half


def section_lines(one: Judged) -> list[str]:
    """A claim's section: what it says, what came out, and all figures. Commands stand beside the tables that these link
    to; those of claims over several tables stand here."""
    lines = [f"## {one.name}", "", f"{one.claim.says}. **{one.verdict}**{f': {one.reason}' if one.reason else ''}.", ""]
    if not one.evidence:
        return [*lines, f"No results of `{one.claim.script}` are recorded for the rows that this claim compares.", ""]
    if any(finding.order.column for evidence in one.evidence for finding in evidence.findings):
        lines += [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
        for evidence in one.evidence:  # the first row of a data set has the link
            named = [_linked(evidence), *[evidence.data] * len(evidence.findings)]
            lines += ["| " + " | ".join([data, *_cells(finding)]) + " |"
                      for data, finding in zip(named, evidence.findings, strict=False)]  # fmt: skip
    elif not one.claim.orders:
        pages = [
            f"{_linked(evidence)} ({evidence.seeds} seed{'s' * (evidence.seeds != 1)})" for evidence in one.evidence
        ]
        lines.append(f"Figures: {', '.join(pages)}.")
    for evidence in one.evidence:
        lines += [f"\n{_linked(evidence)}: {note}." for note in evidence.notes]
    unlinked = [evidence for evidence in one.evidence if not evidence.page]
    commands = list(dict.fromkeys(command for evidence in unlinked for command in evidence.commands))
    return [*lines, *(["", "```bash", *commands, "```"] if commands else []), ""]


def _cells(finding: Finding) -> list[str]:
    order, between = finding.order, finding.interval
    verdict = f"{finding.verdict}: {finding.reason}" if finding.reason else finding.verdict
    means = ["", ""] if finding.means is None else [f" {number(mean)}" for mean in finding.means]
    lower = f"{_factor(order)}{order.less}{means[1]}{_slack(order)}"
    difference = "–"
    if between is not None:
        difference = number(between.mean, sign="+")
    elif finding.means is not None:
        difference = number(finding.means[0] - order.factor * finding.means[1] + order.slack, sign="+")
    figure, higher = finding.column or order.column, f"{order.more}{means[0]}"
    seeds = str(finding.seeds or "–")
    return [figure, higher, lower, difference, limits(between), seeds, verdict]


def _linked(evidence: Evidence) -> str:
    return f"[{evidence.data}]({evidence.page})" if evidence.page else evidence.data


def _factor(order: Order) -> str:
    return "" if order.factor == 1 else f"{order.factor:g} × "


def _slack(order: Order) -> str:
    return "" if not order.slack else f" less {order.slack:g}"
