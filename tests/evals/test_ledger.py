"""The rule of the claims: intervals of paired differences, costs, floors, and data sets together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evals.fedtrans.ledger import CLAIMS
from evals.paper import ledger
from evals.paper.floor_table import LINEAR, above_both
from evals.paper.ledger import FAILS, HOLDS, OPEN, Claim, Judged, combined, evidence
from evals.paper.measurement import Measurement
from evals.paper.orders import Interval, Order, compared, interval
from evals.paper.runs import Records, Table, TableRow

ACCURACY, COST = "accuracy %", "TMACs"
MakeRow = Callable[..., dict[str, Any]]


def judged(claim: Claim, rows: Sequence[Mapping[str, Any]], floors: Sequence[Mapping[str, Any]] = ()) -> Judged:
    return combined("X", claim, evidence(claim, rows, floors, "results/x.md", ["python -m x"]))


def above(*orders: Order) -> Claim:
    return Claim("A is above B", "x", orders or [Order(ACCURACY, "A", "B")])


def verdict(one: Sequence[float], other: Sequence[float], row: MakeRow) -> str:
    return judged(above(), [row("A", one, ACCURACY), row("B", other, ACCURACY)]).verdict


def test_an_interval_is_students() -> None:
    # t(2 degrees of freedom, 0.975) = 4.302653; the deviation of 4, 5, 6 is 1: 4.302653 / sqrt(3)
    assert interval([4, 5, 6]) == Interval(5.0, pytest.approx(2.484138, abs=1e-6))
    # t(3, 0.975) = 3.182446; the deviation of 1, 2, 3, 4 is 1.290994: 3.182446 x 1.290994 / 2
    assert interval([1, 2, 3, 4]) == Interval(2.5, pytest.approx(2.054260, abs=1e-6))
    assert interval([4, 5]) is None and interval([]) is None


def test_three_seeds_decide_where_the_interval_excludes_zero(row: MakeRow) -> None:
    assert verdict([74, 75, 76], [70, 70, 70], row) == HOLDS  # 5 ± 2.5
    assert verdict([72, 71, 73], [70, 70, 70], row) == OPEN  # 2 ± 2.5
    assert verdict([66, 65, 64], [70, 70, 70], row) == FAILS
    assert verdict([95, 96], [70, 71], row) == OPEN  # two seeds, however far apart


def test_differences_are_paired(row: MakeRow) -> None:
    """Seeds move both by tens of points, and leave the difference alone."""
    assert verdict([51, 71.2, 90.9], [50, 70, 90], row) == HOLDS
    assert verdict([51, 71.2, 90.9], [90, 50, 70], row) == OPEN


def test_ties_decide_nothing(row: MakeRow) -> None:
    assert verdict([70, 71, 72], [70, 71, 72], row) == OPEN
    assert verdict([0.3, 0.3, 0.3], [0.1 + 0.2] * 3, row) == OPEN  # equal but for rounding
    assert verdict([70.1, 71.1, 72.1], [70, 71, 72], row) == HOLDS  # however near: the interval is a point


def test_figures_of_few_seeds_are_shown(row: MakeRow) -> None:
    judgement = judged(above(), [row("A", [95], ACCURACY), row("B", [70], ACCURACY)])
    (finding,) = judgement.evidence[0].findings
    assert (judgement.verdict, judgement.reason, finding.means) == (OPEN, "fewer than three seeds", (95.0, 70.0))


def test_the_margin_of_the_papers_figures_stands_beside(row: MakeRow) -> None:
    """Those of the recorded rows, else those that the claim names; nothing where one of the two was not published."""
    rows = [row("A", [74, 75, 76], ACCURACY), row("B", [70, 70, 70], ACCURACY)]
    order = Order(ACCURACY, "A", "B", factor=2.0, slack=1.0)
    (bare,) = judged(above(order), rows).evidence[0].findings
    assert bare.paper is None
    with_paper = [{**rows[0], "paper": {ACCURACY: 90.0}}, rows[1]]
    (half,) = judged(above(order), with_paper).evidence[0].findings
    assert half.paper is None
    claim = Claim(
        "A is above B", "x", [order], published={rows[0]["data"]: {"A": {ACCURACY: 1.0}, "B": {ACCURACY: 40.0}}}
    )
    (both,) = judged(claim, with_paper).evidence[0].findings
    assert both.paper == 90 - 2 * 40 + 1


def test_only_seeds_of_both_count(row: MakeRow) -> None:
    assert verdict([74, 75, 76], [70, 70], row) == OPEN
    judgement = judged(above(), [row("A", [74, 75, 90], ACCURACY), row("B", [70, 71], ACCURACY)])
    assert judgement.evidence[0].findings[0].means == (74.5, 70.5)  # the page shows their difference


def test_a_ratio_and_a_margin_are_part_of_an_order(row: MakeRow) -> None:
    rows = [row("A", [1.7, 1.7, 1.7], "MB"), row("B", [1.0, 1.0, 1.0], "MB")]
    assert judged(above(Order("MB", "A", "B", 1.6)), rows).verdict == HOLDS
    assert judged(above(Order("MB", "A", "B", 1.8)), rows).verdict == FAILS
    assert judged(above(Order("MB", "B", "A", slack=0.8)), rows).verdict == HOLDS


def test_costs_at_equal_rounds_decide_nothing(row: MakeRow) -> None:
    claim = above(Order(COST, "A", "B", 1.6))
    rows = [row("A", [9, 9.1, 9.2], COST), row("B", [1, 1.1, 1.2], COST)]
    judgement = judged(claim, rows)
    assert (judgement.verdict, judgement.reason) == (OPEN, "costs not at equal accuracy")
    assert judgement.evidence[0].findings[0].interval is not None  # told all the same
    for name in ("TMACs at equal accuracy", "TMACs at convergence"):
        for one, values in zip(rows, ([1, 1.1, 1.2], [9, 9.1, 9.2]), strict=True):
            one["figures"][name] = {"values": values, "mean": sum(values) / 3}
        assert judged(claim, rows).verdict == FAILS  # though at equal rounds A has nine times as many
        del rows[0]["figures"][name]
        assert judged(claim, rows).verdict == OPEN


def test_figures_of_a_round_are_no_such_costs(row: MakeRow) -> None:
    rows = [row(label, [value] * 3, "network MB / round") for label, value in (("A", 9.0), ("B", 1.0))]
    assert judged(above(Order("network MB / round", "A", "B")), rows).verdict == HOLDS


def _floor(mean: float, all_samples: float = 0.0) -> dict[str, Any]:
    figures = {"accuracy %": {"mean": mean}, "global %": {"mean": all_samples}}
    return {"label": LINEAR, "data": "any", "figures": figures}


def test_no_system_is_judged_that_a_linear_model_is_above(row: MakeRow) -> None:
    rows = [row("A", [74, 75, 76], ACCURACY), row("B", [70, 70, 70], ACCURACY)]
    judgement = judged(above(), rows, [_floor(75.5)])
    assert (judgement.verdict, judgement.reason) == (OPEN, "a linear model is more accurate")
    assert judgement.evidence[0].findings[0].reason == "a linear model is more accurate: 75.5 %"
    assert judged(above(), rows, [_floor(74.5)]).verdict == HOLDS  # above one of both
    assert judged(above(), rows, [{**_floor(99), "data": "other"}]).verdict == HOLDS
    assert judged(above(), rows, [{**_floor(99), "label": "central model"}]).verdict == HOLDS


def test_a_floor_is_held_beside_figures_that_are_tested_alike(row: MakeRow) -> None:
    one, other = (row(label, [50, 50, 50], "test accuracy %") for label in "AB")
    assert above_both([_floor(0.0, 51.0)], "test accuracy %", one, other) == 51.0
    assert above_both([_floor(51.0, 0.0)], "test accuracy %", one, other) is None
    for each in (one, other):
        each["figures"]["worst client %"] = {"mean": 3.0}
    assert above_both([_floor(0.0, 51.0)], "worst client %", one, other) == 51.0  # the job's accuracy tells


def test_all_orders_have_to_hold(row: MakeRow) -> None:
    claim = above(Order(ACCURACY, "A", "B"), Order(ACCURACY, "A", "C"))
    a, b = row("A", [74, 75, 76], ACCURACY), row("B", [70, 70, 70], ACCURACY)
    assert judged(claim, [a, b, row("C", [60, 60, 60], ACCURACY)]).verdict == HOLDS
    assert judged(claim, [a, b, row("C", [90, 90, 90], ACCURACY)]).verdict == FAILS
    assert judged(claim, [a, b, row("C", [76, 73, 78], ACCURACY)]).verdict == OPEN
    assert judged(claim, [a, b]).verdict == OPEN  # one was not run
    assert judged(above(claim.orders[0], Order(ACCURACY, "A", "C", optional=True)), [a, b]).verdict == HOLDS


def test_data_sets_have_to_agree(row: MakeRow) -> None:
    def rows(data: str, values: Sequence[float]) -> list[dict[str, Any]]:
        return [row("A", values, ACCURACY, data), row("B", [70, 70, 70], ACCURACY, data)]

    yes, no, open_, few = [74, 75, 76], [64, 65, 66], [69, 70, 72], [99, 99]
    for all_values, came_out, reason in (
        ([yes, few], HOLDS, ""),
        ([no, few], FAILS, ""),
        ([yes, no], OPEN, "data sets disagree"),
        ([yes, open_], OPEN, "within chance on a data set"),
        ([no, open_], FAILS, ""),
        ([open_, few], OPEN, "within chance"),
    ):
        both = [one for number, values in enumerate(all_values) for one in rows(f"data{number}", values)]
        judgement = judged(above(), both)
        assert (judgement.verdict, judgement.reason) == (came_out, reason)


def test_a_claim_without_results_is_open() -> None:
    assert (judged(above(), []).verdict, judged(above(), []).reason) == (OPEN, "not run")
    assert judged(Claim("a shape", "x"), []).reason == "no numeric rule, see the table"


def recorded(folder: Path, accuracies: Mapping[str, Sequence[float]], *names: str) -> Records:
    """Tables of a script "x" with these rows, a value for each seed."""
    records, rows = Records(folder), []
    for label, values in accuracies.items():
        lines = [Measurement("any", "small", seed, {"label": label}, {ACCURACY: value})
                 for seed, value in enumerate(values)]  # fmt: skip
        rows.append(TableRow(label, "any", [records.add(line) for line in lines]))
    records.tables = {name: Table("x", "small", ["python -m x"], rows) for name in names}
    return records


def test_notes_of_a_table_stand_in_the_evidence(tmp_path: Path) -> None:
    records = recorded(tmp_path, {"A": [74, 75], "B": [70, 70]}, "x_small_first", "x_small_second")
    records.tables["x_small_first"] = replace(records.tables["x_small_first"], notes=["Seeds differ."])
    assert [judgement.notes for judgement in ledger.judged("X", above(), records, "small").evidence] == [
        ["Seeds differ"],
        [],
    ]


def test_a_note_on_a_row_stands_only_where_a_claim_compares_it(tmp_path: Path) -> None:
    records = recorded(tmp_path, {"A": [74, 75], "B": [70, 70], "C": [60, 60]}, "x_small_y")
    records.tables["x_small_y"] = replace(records.tables["x_small_y"], row_notes={"C": "Its jobs are older."})
    notes = {other: ledger.judged("X", above(Order(ACCURACY, "A", other)), records, "small").evidence[0].notes
             for other in "BC"}  # fmt: skip
    assert notes == {"B": [], "C": ["Its jobs are older"]}


def test_a_row_that_cannot_stand_beside_the_others_is_left_out(tmp_path: Path) -> None:
    records = recorded(tmp_path, {"A": [74, 75, 76], "B": [70, 70, 70]}, "x_small_y")
    assert ledger.judged("X", above(), records, "small").verdict == HOLDS
    records.tables["x_small_y"] = replace(records.tables["x_small_y"], incomparable={"B": "was tested otherwise"})
    judgement = ledger.judged("X", above(), records, "small")
    assert judgement.verdict == OPEN and judgement.evidence[0].notes == ["left out, as it was tested otherwise: B"]


def test_a_claim_over_all_tables_has_their_notes_and_leaves_out_their_rows(tmp_path: Path) -> None:
    records = recorded(tmp_path, {"A": [74, 75, 76], "B": [70, 70, 70]}, "x_small_first", "x_small_second")
    for name, table in records.tables.items():
        records.tables[name] = replace(table, notes=["Old jobs."], incomparable={"B": "was tested otherwise"})
    judgement = ledger.judged("X", replace(above(), across=True), records, "small")
    assert judgement.verdict == OPEN
    assert judgement.evidence[0].notes == ["left out, as it was tested otherwise: B", "Old jobs"]


def test_a_row_is_left_out_only_on_the_data_of_its_table(tmp_path: Path) -> None:
    records = recorded(tmp_path, {"A": [74, 75, 76], "B": [70, 70, 70]}, "x_small_first")
    first = records.tables["x_small_first"]
    records.tables["x_small_second"] = replace(first, rows=[replace(row, data="other") for row in first.rows])
    records.tables["x_small_first"] = replace(first, incomparable={"B": "was tested otherwise"})
    judgement = ledger.judged("X", replace(above(), across=True), records, "small")
    assert {one.data: one.verdict for one in judgement.evidence} == {"any": OPEN, "other": HOLDS}


def test_rows_may_be_left_out_with_a_reason(row: MakeRow) -> None:
    claim = Claim("A is above all", "x", [Order(ACCURACY, "A", "B"), Order(ACCURACY, "A", "C")],
                  lambda rows, floors: {("any", "C"): "collapsed"})  # fmt: skip
    rows = [row(label, values, ACCURACY) for label, values in (("A", [74, 75, 76]), ("B", [70] * 3), ("C", [9] * 3))]
    judgement = judged(claim, rows)
    assert judgement.verdict == HOLDS and judgement.evidence[0].notes == ["left out, as it collapsed: C"]
    nothing = judged(Claim("", "x", claim.orders, lambda rows, floors: {("any", "A"): "collapsed"}), rows)
    assert (nothing.verdict, nothing.reason) == (OPEN, "every comparison was left out")


def test_jobs_from_before_a_fix_decide_nothing_and_their_figures_are_shown(row: MakeRow) -> None:
    claim = Claim("A is above B", "x", [Order(ACCURACY, "A", "B")], outdated={"any": {"B": "B ran before a fix"}})
    judgement = judged(claim, [row("A", [74, 75, 76], ACCURACY), row("B", [70, 70, 70], ACCURACY)])
    assert (judgement.verdict, judgement.reason) == (OPEN, "B ran before a fix")
    assert judgement.evidence[0].findings[0].interval is not None


def test_a_remark_stands_beside_decided_verdicts_alone(row: MakeRow) -> None:
    claim = replace(above(), remark="older code")
    for values, expected in (([74, 75, 76], (HOLDS, "older code")), ([64, 65, 66], (FAILS, "older code")),
                             ([60, 70, 80], (OPEN, "within chance"))):  # fmt: skip
        judgement = judged(claim, [row("A", values, ACCURACY), row("B", [70, 70, 70], ACCURACY)])
        assert (judgement.verdict, judgement.reason) == expected


def test_fedtranss_accuracy_has_no_tolerance_of_its_own(row: MakeRow) -> None:
    """A difference of two points with a narrow interval counts on all papers' pages."""
    rows = [row("FedTrans", [80, 81, 82], ACCURACY), row("HeteroFL", [78, 79.1, 80], ACCURACY)]
    assert judged(CLAIMS["F1"], rows).verdict == HOLDS


def test_an_order_names_the_figure_that_was_compared(row: MakeRow) -> None:
    rows = [row(label, [1, 2, 3], "TMACs at convergence") for label in "AB"]
    (finding,) = compared(Order(COST, "A", "B"), rows)
    assert finding.column == "TMACs at convergence" and list(finding.margins) == [0, 0, 0]
