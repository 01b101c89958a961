"""What evals/claims.py writes: a line per claim in the form that readers and scripts rely on, and pages that are
current."""

import re
from pathlib import Path

import pytest

from evals import claims
from evals.paper import tables
from evals.paper.claim_pages import anchor, ledger_lines, overview_lines, section_lines, summary_lines
from evals.paper.ledger import FAILS, HOLDS, OPEN, Claim, Evidence, Finding, Judged
from evals.paper.orders import Interval, Order

_ORDER = Order("accuracy %", "A", "B")
_IDS = [f"{letter}{number}" for letter, last in (("F", 20), ("M", 12), ("H", 12), ("A", 9))
        for number in range(1, last + 1)]  # fmt: skip


def test_the_claims_pages_are_current() -> None:
    """If not: python -m evals.claims"""
    for path, text in claims.pages().items():
        assert path.read_text(encoding="utf-8") == text, path


def test_the_tables_are_current() -> None:
    """If not: python -m evals.paper.tables"""
    found = tables.tables()
    assert len(found) > 80
    for path, text in found.items():
        assert path.read_text(encoding="utf-8") == text, path


def _ledger() -> list[list[str]]:
    text = (claims.FOLDER / "claims.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- ledger: .*?-->\n(.*?)<!-- end of ledger -->", text, re.DOTALL)
    assert block is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in block[1].strip().splitlines()[2:]]


def test_each_claim_has_a_line_with_an_outcome() -> None:
    rows = _ledger()
    assert {row[0] for row in rows} >= set(_IDS)
    assert len({row[0] for row in rows}) == len(rows)
    for name, outcome, figures, seeds, link in rows:
        assert outcome in (HOLDS, FAILS, OPEN) and seeds and "`" not in link
        assert len(figures.split()) <= 20, name


def test_links_of_the_ledger_lead_to_sections_with_commands_or_to_what_was_not_run() -> None:
    for name, *_, link in _ledger():
        folder, _, fragment = re.search(r"\((.*)\)", link)[1].partition("#")  # type: ignore[index]
        text = (claims.FOLDER / folder).read_text(encoding="utf-8")
        section = text.split(f"## {name}\n")[1].split("\n## ")[0]
        assert anchor(name) == fragment
        assert "```bash\npython -m evals." in section or "No results of `" in section, name


def test_the_first_claim_of_fedoras_has_both_rows() -> None:
    assert {"A1", "A1, 30 rounds"} <= {row[0] for row in _ledger()}


def _judged() -> Judged:
    findings = [
        Finding(_ORDER, HOLDS, 3, means=(75.0, 70.0), interval=Interval(5.0, 2.0), column="accuracy %"),
        Finding(Order("accuracy %", "A", "C"), FAILS, 3, means=(75.0, 80.0), interval=Interval(-5.0, 1.5)),
    ]
    few = [Finding(_ORDER, OPEN, 1, reason="1 seed", means=(1.0, 2.0), column="accuracy %")]
    evidence = [Evidence("har", findings, "results/x.md", ["run x"]), Evidence("mnist", few, "results/y.md", ["run y"])]
    return Judged("X1", Claim("A is above B", "table2", [_ORDER]), FAILS, evidence)


def test_a_line_tells_what_decided() -> None:
    line = ledger_lines([("fedtrans", _judged())], "small")[-1]
    assert line == "| X1 | does not hold | har -5 ± 1.5 | 1 to 3 seeds, small | [X1](fedtrans/ledger.md#x1) |"


def test_a_section_has_all_figures_intervals_and_commands() -> None:
    lines = section_lines(_judged())
    assert lines[0] == "## X1" and "A is above B. **does not hold**." in lines
    assert "| [har](results/x.md) | accuracy % | A 75 | B 70 | +5 | 3 to 7 | 3 | holds |" in lines
    assert "| [mnist](results/y.md) | accuracy % | A 1 | B 2 | -1 | – | 1 | not decidable: 1 seed |" in lines
    assert lines[-5:] == ["```bash", "run x", "run y", "```", ""]


def test_the_summary_says_what_the_ledger_says() -> None:
    """A reader who sees the one is told the same by the other."""
    held, open_ = Judged("X2", Claim("B", "x"), HOLDS), Judged("X3", Claim("C", "x"), OPEN, reason="1 seed")
    found = [("fedtrans", _judged()), ("fedtrans", held), ("moss", open_)]
    assert [line.split("|")[3].strip() for line in summary_lines(found)[2:]] == [FAILS, HOLDS, f"{OPEN}: 1 seed"]
    overview = overview_lines(found, {"fedtrans": "FedTrans", "moss": "Moss"})
    assert overview[2:] == [
        "| [FedTrans](fedtrans/ledger.md) | X2 | X1 | – |",
        "| [Moss](moss/ledger.md) | – | – | X3 |",
    ]


def test_a_block_is_written_between_its_lines_alone() -> None:
    text = "before\n<!-- x: written by python -m evals.claims -->\nold\n<!-- end of x -->\nafter\n"
    new = claims.with_block(text, "x", ["new \\1"])
    assert new == "before\n<!-- x: written by python -m evals.claims -->\n\nnew \\1\n\n<!-- end of x -->\nafter\n"
    assert claims.with_block(new, "x", ["new \\1"]) == new
    with pytest.raises(ValueError, match="there is no block 'y'"):
        claims.with_block(text, "y", [])


def test_no_results_file_of_a_claim_names_a_place_of_a_machine() -> None:
    for name in claims.CLAIMS:
        page = Path(claims.FOLDER / name / "ledger.md").read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.:/])/(?:tmp|home|root|work)/", page)
