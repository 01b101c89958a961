"""The one rule by which the papers' claims are decided from the results of their scripts.

A claim is a list of orders "figure of A > factor x figure of B - slack", looked at on each data set.

* Jobs of one seed are compared; their differences are paired. An order is decided by three seeds or more, where the
  95 % interval of the mean difference by Student's t excludes zero: it holds above, it does not hold below. All else is
  open; ties decide nothing.
* Costs that grow with every round are compared at equal accuracy or at convergence (``orders.COMPARABLE``). Figures at
  equal rounds decide nothing.
* A data set judges no systems that a linear model on raw inputs is above (floor_table.py).
* On a data set, a claim does not hold where one of its orders does not, holds where all do, and else is open.
* Rows whose jobs ran before a fix that changes the compared figure decide nothing (``Claim.outdated``).
* Sizes that do not depend on seeds are decided by one count.
* A claim holds where it does on one data set at least and every other one that could decide (three seeds, no floor
  above) agrees. It does not hold where it does not on one data set and holds on none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evals.paper.floor_table import above_both
from evals.paper.orders import (
    COSTS,
    FEWEST_SEEDS,
    Compared,
    Interval,
    Order,
    Row,
    compared,
    interval,
    number,
    published_margin,
)
from evals.paper.output import recorded_floors, rows_of
from evals.paper.runs import Records, link

HOLDS, FAILS, OPEN = "holds", "does not hold", "open"
NOT_RUN, LINEAR_ABOVE = "not run", "a linear model is more accurate"
NO_RULE = "no numeric rule, see the table"
MOST_WORDS = 12  # of a table's cell
Published = Mapping[str, Mapping[str, float]]  # figures by column, by label
LeavesOut = Callable[[Sequence[Row], Sequence[Row]], Mapping[tuple[str, str], str]]
"""Of rows and those of the floors: why a row is left out, by data set and label."""


@dataclass(frozen=True)
class Claim:
    """``says`` in a sentence what the paper claims; ``orders`` are looked for in the results of ``script``, in all its
    tables at once where the claim is ``across`` data sets. ``leaves_out`` names rows whose figures say nothing of it.
    ``published`` are the paper's figures by data set and label, of rows that were recorded without them. Without orders
    no numeric rule decides it: readers see the script's tables. A table shows ``says``: ``MOST_WORDS`` at most.
    ``outdated`` says by data set and label why figures of earlier jobs decide nothing. ``remark`` stands beside a
    verdict that they do decide, in two or three words."""

    says: str
    script: str
    orders: Sequence[Order] = ()
    leaves_out: LeavesOut | None = None
    across: bool = False
    published: Mapping[str, Published] = field(default_factory=dict)
    outdated: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    remark: str = ""


@dataclass(frozen=True)
class Finding:
    """One order on one data set; ``reason`` says why it is open. Without means it was not run, or left out.
    ``paper`` is the margin of the paper's own figures, where both are published."""

    order: Order
    verdict: str
    seeds: int = 0
    reason: str = ""
    means: tuple[float, float] | None = None
    interval: Interval | None = None
    column: str = ""
    paper: float | None = None

    @property
    def short_reason(self) -> str:
        """Without figures."""
        return self.reason.partition(":")[0]

    @property
    def undecided_by_chance(self) -> bool:
        """Whether nothing but the spread over seeds leaves it open."""
        return self.verdict == OPEN and self.interval is not None and not self.reason


@dataclass(frozen=True)
class Evidence:
    """What the results of one data set say of a claim; ``page`` is the table that has the figures."""

    data: str
    findings: Sequence[Finding]
    page: str
    commands: Sequence[str]
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """Of all orders together."""
        return all_of([finding.verdict for finding in self.findings])

    @property
    def seeds(self) -> int:
        """The most that an order has."""
        return max((finding.seeds for finding in self.findings), default=0)

    @property
    def could_decide(self) -> bool:
        """Whether all orders were measured as the rule asks, so that the spread over seeds alone may leave it open."""
        return bool(self.findings) and all(
            finding.verdict != OPEN or finding.undecided_by_chance for finding in self.findings
        )


@dataclass(frozen=True)
class Judged:
    """A claim's verdict with its evidence; ``reason`` is short: why a claim is open, or a remark on a decided one."""

    name: str
    claim: Claim
    verdict: str
    evidence: Sequence[Evidence] = field(default_factory=list)
    reason: str = ""


def all_of(verdicts: Sequence[str]) -> str:
    """Of parts that all have to hold."""
    if FAILS in verdicts:
        return FAILS
    return HOLDS if verdicts and set(verdicts) == {HOLDS} else OPEN


def judged_order(order: Order, one: Compared, floor_rows: Sequence[Row], published: Published | None = None) -> Finding:
    """The rule on one order and data set."""
    count, between = len(one.seeds), interval(one.margins)
    finding = Finding(order, OPEN, count, means=one.means, interval=between, column=one.column,
                      paper=published_margin(order, one, published or {}))  # fmt: skip
    if one.column in COSTS:
        return replace(finding, reason="costs not at equal accuracy")
    if (floor := above_both(floor_rows, one.column, one.more, one.less)) is not None:
        return replace(finding, reason=f"{LINEAR_ABOVE}: {number(floor)} %")
    if between is None:
        return replace(finding, reason=f"{count} seed{'s' * (count != 1)}")
    return replace(finding, verdict={1: HOLDS, -1: FAILS, 0: OPEN}[between.sign])


def evidence(
    claim: Claim,
    rows: Sequence[Row],
    floor_rows: Sequence[Row],
    page: str,
    commands: Sequence[str],
    incomparable: Mapping[tuple[str, str], str] | None = None,
) -> list[Evidence]:
    """What rows of results say of a claim, by data set; none of a data set that has nothing to compare.

    ``incomparable`` says by data set and label why a row cannot stand beside the others; it is left out.
    """
    unfit = {**({} if claim.leaves_out is None else claim.leaves_out(rows, floor_rows)), **(incomparable or {})}
    by_data: dict[str, list[Finding]] = {}
    left_out: dict[str, dict[str, list[str]]] = {}  # labels by data set and reason
    pairs = [(order, {one.data: one for one in compared(order, rows)}) for order in claim.orders]
    datas = list(dict.fromkeys(data for _, by_name in pairs for data in by_name))
    for data in datas:
        findings, reasons = by_data.setdefault(data, []), left_out.setdefault(data, {})
        for order, by_name in pairs:
            if not data.startswith(order.data):
                continue
            if data not in by_name:
                findings += [] if order.optional else [Finding(order, OPEN, reason=NOT_RUN)]
                continue
            gone = {label: unfit[data, label] for label in (order.more, order.less) if (data, label) in unfit}
            for label, reason in gone.items():
                labels = reasons.setdefault(reason, [])
                labels += [] if label in labels else [label]
            if not gone:
                finding = judged_order(order, by_name[data], floor_rows, claim.published.get(data))
                why = _outdated(claim, data, order)
                findings.append(replace(finding, verdict=OPEN, reason=why) if why else finding)
    return [
        Evidence(data, by_data[data], page, commands,
                 [f"left out, as it {reason}: {', '.join(labels)}" for reason, labels in left_out[data].items()])
        for data in datas
    ]  # fmt: skip


def _outdated(claim: Claim, data: str, order: Order) -> str:
    """Why jobs of either row decide nothing on a data set; empty if they do."""
    reasons = claim.outdated.get(data, {})
    return reasons.get(order.more) or reasons.get(order.less) or ""


def combined(name: str, claim: Claim, evidence: Sequence[Evidence]) -> Judged:
    """A claim's verdict over all data sets."""
    verdicts = [one.verdict for one in evidence]
    if not claim.orders:
        return Judged(name, claim, OPEN, evidence, NO_RULE)
    if not evidence:
        return Judged(name, claim, OPEN, evidence, NOT_RUN)
    if HOLDS in verdicts and FAILS in verdicts:
        return Judged(name, claim, OPEN, evidence, "data sets disagree")
    if FAILS in verdicts:
        return Judged(name, claim, FAILS, evidence, claim.remark)
    if any(one.verdict == OPEN and one.could_decide for one in evidence):
        return Judged(name, claim, OPEN, evidence, "within chance" + " on a data set" * (HOLDS in verdicts))
    if HOLDS in verdicts:
        return Judged(name, claim, HOLDS, evidence, claim.remark)
    reasons = [finding.short_reason for one in evidence for finding in one.findings if finding.reason]
    return Judged(name, claim, OPEN, evidence, _shortest(reasons))


def _shortest(reasons: Sequence[str]) -> str:
    """One reason for all: few seeds are named last, as more of them would not help where another stands in the way."""
    counts = [reason for reason in reasons if reason.partition(" ")[0].isdecimal()]
    others = [reason for reason in reasons if reason not in (*counts, NOT_RUN)]
    if others:
        return max(dict.fromkeys(others), key=others.count)
    if counts:
        return "fewer than three seeds"
    return "some rows were not run" if reasons else "every comparison was left out"


def judged(name: str, claim: Claim, records: Records, scale: str) -> Judged:
    """The rule on one claim, from the tables of its script."""
    floor_rows = recorded_floors(records, scale)
    compared_labels = {label for order in claim.orders for label in (order.more, order.less)}
    pieces: list[Evidence] = []
    all_rows: list[Row] = []
    commands: list[str] = []
    all_notes: list[str] = []
    incomparable: dict[tuple[str, str], str] = {}
    for table_name, table in sorted(records.tables.items()):
        if (table.script, table.scale) != (claim.script, scale):
            continue
        rows = rows_of(records, table_name)
        all_rows += rows
        commands += table.commands
        row_notes = [note for label, note in table.row_notes.items() if label in compared_labels]
        notes = [note.removesuffix(".") for note in (*table.notes, *row_notes)]
        all_notes += notes
        unfit = {(row["data"], row["label"]): table.incomparable[row["label"]] for row in rows
                 if row["label"] in table.incomparable}  # fmt: skip
        incomparable |= unfit
        if not claim.across:
            page = link(table_name)
            of_table = evidence(claim, rows, floor_rows, page, table.commands, unfit)
            pieces += [replace(piece, notes=[*piece.notes, *notes]) for piece in of_table]
            if not claim.orders:
                pieces += _by_eye(rows, page, table.commands)
    if claim.across:
        of_all = evidence(claim, all_rows, floor_rows, "", commands, incomparable)
        pieces = [replace(piece, notes=[*piece.notes, *dict.fromkeys(all_notes)]) for piece in of_all]
    return combined(name, claim, pieces)


def _by_eye(rows: Sequence[Row], page: str, commands: Sequence[str]) -> Iterator[Evidence]:
    """Where the figures of a claim without orders stand."""
    order = Order("", "", "")
    for data in dict.fromkeys(row["data"] for row in rows if row["seeds"]):
        most = max(len(row["seeds"]) for row in rows if row["data"] == data)
        yield Evidence(data, [Finding(order, OPEN, most, NO_RULE)], page, commands)


def enough(evidence: Evidence) -> bool:
    """Whether an order has as many seeds as the rule asks for."""
    return evidence.seeds >= FEWEST_SEEDS
