"""The table of a comparison as a terminal, a page and a CSV file show it."""

from pathlib import Path

from written_job import write_job

from fedscale_ext.report.compare.arms import shown
from fedscale_ext.report.compare.comparison_table import comma_separated, has_papers, table_rows, terminal_table
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import load_job


def test_the_papers_row_stands_below_ours_for_real_data_only(arms, tmp_path: Path):
    rows = table_rows(arms)
    assert [row.label for row in rows] == [
        "fedtrans", "fedtrans: FedTrans, Table 2, LEAF's FEMNIST",
        "heterofl", "heterofl: FedTrans, Table 2, LEAF's FEMNIST", "fedavg",
    ]  # fmt: skip
    paper = dict(zip([figure.key for figure in shown(arms)], rows[1].cells, strict=True))
    assert (paper["accuracy"].value, paper["macs"].value, paper["suite"].value) == ("76.42", "100 T", "–")
    assert rows[0].cells[0].best and rows[0].cells[0].spread.startswith("± ") and not rows[2].cells[0].spread
    assert not has_papers(table_rows(arms_of([load_job(write_job(tmp_path / "made", generated=True))])))


def test_the_csv_has_every_job_at_full_precision(arms):
    head, *rows = [line.split(",") for line in comma_separated(arms).splitlines()]
    assert head[:6] == ["arm", "job", "seed", "data", "finished", "accuracy"] and len(rows) == 4
    assert float(rows[0][5]) == arms[0].figures["accuracy"][0]
    assert rows[3][4] == "no" and rows[3][head.index("suite")] == ""


def test_the_whole_models_accuracy_is_a_column_where_a_job_has_it(arms, tmp_path: Path):
    assert (
        "global" not in comma_separated(arms) and "global accuracy %" not in terminal_table(arms, table_rows(arms))[0]
    )
    jobs = [load_job(write_job(tmp_path / name, method=name, whole=whole, data_set="unimib_shar", params={"k": 50}))
            for name, whole in (("hypemefed", 0.625), ("depthfl", 0.5), ("fedtrans", None))]  # fmt: skip
    three = arms_of(jobs)
    titles, rows = terminal_table(three, table_rows(three))
    index = titles.index("global accuracy %")
    assert index == 3 and [row[index] for row in rows] == ["62.50*", "50.00", "–"]
    first, paper, second, third = (row.cells[1] for row in table_rows(three))
    assert (first.value, first.best, paper.value, second.best, third.value) == ("62.50", True, "38.76", False, "–")
    head, *values = [line.split(",") for line in comma_separated(three).splitlines()]
    assert [row[head.index("global")] for row in values] == ["0.625", "0.5", ""]


def test_no_deviation_is_not_told(arms):
    arms[0].figures["accuracy"], arms[0].figures["macs"] = [0.5, 0.5], [1e9, 1e9]
    assert "±" not in terminal_table(arms, table_rows(arms))[1][0][2]
    assert not any(cell.spread for cell in table_rows(arms)[0].cells if cell.value in ("50.00", "1.00 G"))


def test_the_terminals_table_has_a_star_for_the_best(arms):
    titles, rows = terminal_table(arms, table_rows(arms))
    assert titles[:3] == ["", "jobs", "accuracy %"]
    assert rows[0][2].endswith("*") and "±" in rows[0][2] and rows[2][0] == "fedavg (round 20 of 40)"
