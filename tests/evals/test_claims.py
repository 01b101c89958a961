"""What evals/claims.py writes: a row per claim in the form that readers and scripts rely on, and pages that are
current."""

import re
from pathlib import Path

import pytest

from evals import claims
from evals.paper import output
from evals.paper.blocks import with_block
from evals.paper.claim_pages import claim_lines, fitting, overview_lines, section_lines
from evals.paper.ledger import FAILS, HOLDS, MOST_WORDS, OPEN, Claim, Evidence, Finding, Judged
from evals.paper.orders import Interval, Order, number
from evals.paper.papers import PAPERS, TITLES
from evals.paper.runs import Records, anchor

_ORDER = Order("accuracy %", "A", "B")
_IDS = [f"{letter}{number}" for letter, last in (("F", 20), ("M", 12), ("H", 12), ("A", 9))
        for number in range(1, last + 1)]  # fmt: skip


def test_the_claims_pages_are_current() -> None:
    """If not: python -m evals.claims"""
    for path, text in claims.pages().items():
        assert path.read_text(encoding="utf-8") == text, path


@pytest.mark.parametrize("paper", PAPERS)
def test_the_pages_of_results_are_current(paper: str) -> None:
    """If not: python -m evals.tables"""
    records = Records.load(claims.FOLDER / paper)
    assert len(records.tables) > 10
    assert output.page_of(records) == (claims.FOLDER / paper / "results.md").read_text(encoding="utf-8")


def _tables() -> list[list[list[str]]]:
    """The rows of each paper's table on evals/claims.md."""
    text = (claims.FOLDER / "claims.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- ledger: .*?-->\n(.*?)<!-- end of ledger -->", text, re.DOTALL)
    assert block is not None
    return [
        [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in section.splitlines()
            if line.startswith("| [")
        ]
        for section in block[1].split("\n## ")[1:]
    ]


def _rows() -> list[tuple[str, str, list[str]]]:
    """Name, target of its link, and the other cells of each claim's row."""
    rows = []
    for row in (row for table in _tables() for row in table):
        link = re.fullmatch(r"\[(.*)\]\((.*)\)", row[0])
        assert link is not None
        rows.append((link[1], link[2], row[1:]))
    return rows


def test_each_claim_has_a_row_with_a_verdict() -> None:
    names = [name for name, _, _ in _rows()]
    assert set(names) >= set(_IDS) and len(set(names)) == len(names)
    for _, _, (says, verdict, ours, paper, seeds) in _rows():
        assert says and ours and paper and seeds
        decided, _, words = verdict.partition(": ")
        assert decided in (HOLDS, FAILS) or (decided == OPEN and words)


def test_decided_claims_come_first_in_each_table() -> None:
    order = (HOLDS, FAILS, OPEN)
    for table in _tables():
        verdicts = [order.index(row[2].partition(":")[0]) for row in table]
        assert verdicts == sorted(verdicts)


def _long_cells(text: str) -> list[str]:
    """Cells of a page's tables with more than ``MOST_WORDS`` words; a piece of code counts as one."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    plain = re.sub(r"`[^`\n]*`", "x", re.sub(r"\]\([^)]*\)", "", prose))
    cells = [cell for line in plain.splitlines() if line.startswith("|") for cell in re.split(r"(?<!\\)\|", line)]
    return [cell for cell in cells if len(cell.split()) > MOST_WORDS]


def test_a_cell_of_the_tables_of_claims_and_of_the_overview_holds_few_words() -> None:
    judged = claims.all_judged()
    lines = [*claim_lines(judged, TITLES), *overview_lines(judged, TITLES)]
    assert not _long_cells("\n".join(lines))


def test_a_cell_of_the_pages_of_results_holds_few_words() -> None:
    pages = list(claims.FOLDER.glob("**/*.md"))
    assert len(pages) > 20
    assert not [(page, cell) for page in pages for cell in _long_cells(page.read_text(encoding="utf-8"))]


def test_a_long_cell_is_noticed() -> None:
    words = "one " * MOST_WORDS
    assert not _long_cells(f"| {words}| `a long piece of code in a cell` {'one ' * 11}| [a](b c) |\n")
    assert len(_long_cells(f"| {words}more | {words}|\n```\n| {words} more |\n```\n{words} more |\n")) == 1


def test_figures_that_do_not_fit_in_a_cell_are_counted() -> None:
    assert fitting([]) == "–"
    assert fitting(["a b c"] * 4) == "a b c; a b c; a b c; a b c"
    assert fitting(["a b c d e"] * 3) == "a b c d e; a b c d e; 1 more"
    assert fitting(["F1"] * 14, ", ") == ", ".join(["F1"] * 10) + ", 4 more"
    assert fitting(["a " * 13]) == "1 on the page of figures"


def test_links_of_the_claims_lead_to_sections_with_commands_or_to_what_was_not_run() -> None:
    for name, target, _ in _rows():
        folder, _, fragment = target.partition("#")
        text = (claims.FOLDER / folder).read_text(encoding="utf-8")
        section = text.split(f"## {name}\n")[1].split("\n## ")[0]
        assert anchor(name) == fragment
        commands = (
            "](results.md#" in section or "```bash\npython -m evals." in section or "hypernetwork_cost" in section
        )
        assert commands or "No results of `" in section, name


def test_the_first_claim_of_fedoras_has_both_rows() -> None:
    assert {"A1", "A1, 30 rounds"} <= {name for name, _, _ in _rows()}


def _judged() -> Judged:
    findings = [
        Finding(_ORDER, HOLDS, 3, means=(75.0, 70.0), interval=Interval(5.0, 2.0), column="accuracy %"),
        Finding(Order("accuracy %", "A", "C"), FAILS, 3, means=(75.0, 80.0), interval=Interval(-5.0, 1.5),
                column="accuracy %", paper=2.25),
    ]  # fmt: skip
    few = [Finding(_ORDER, OPEN, 1, reason="1 seed", means=(1.0, 2.0), column="accuracy %")]
    evidence = [Evidence("har", findings, "results.md#x", ["run x"]), Evidence("mnist", few, "", ["run y"])]
    return Judged("X1", Claim("A is above B", "table2", [_ORDER]), FAILS, evidence)


def test_a_row_tells_what_decided_and_the_papers_figure() -> None:
    line = claim_lines([("fedtrans", _judged())], {"fedtrans": "FedTrans"})[-1]
    cells = ["[X1](fedtrans/ledger.md#x1)", "A is above B", FAILS, "har -5 ± 1.5 points", "har +2.25 points", "1 to 3"]
    assert line == f"| {' | '.join(cells)} |"


def test_a_section_has_all_figures_and_intervals_and_commands_of_no_table() -> None:
    lines = section_lines(_judged())
    assert lines[0] == "## X1" and "A is above B. **does not hold**." in lines
    assert "| [har](results.md#x) | accuracy % | A 75 | B 70 | +5 | 3 to 7 | 3 | holds |" in lines
    assert "| mnist | accuracy % | A 1 | B 2 | -1 | – | 1 | open: 1 seed |" in lines
    assert lines[-5:] == ["", "```bash", "run y", "```", ""]


def test_claims_stand_in_the_table_of_their_paper() -> None:
    held, open_ = Judged("X2", Claim("B", "x"), HOLDS), Judged("X3", Claim("C", "x"), OPEN, reason="1 seed")
    judged = [("fedtrans", open_), ("fedtrans", _judged()), ("fedtrans", held), ("moss", open_)]
    titles = {"fedtrans": "FedTrans", "moss": "Moss"}
    rows = [line.split(" | ") for line in claim_lines(judged, titles) if line.startswith(("## ", "| ["))]
    assert [row[0] if len(row) == 1 else row[2] for row in rows] == [
        "## FedTrans",
        HOLDS,
        FAILS,
        f"{OPEN}: 1 seed",
        "## Moss",
        f"{OPEN}: 1 seed",
    ]
    assert overview_lines(judged, titles)[2:] == [
        "| [FedTrans](claims.md#fedtrans) | X2 | X1 | 1 |",
        "| [Moss](claims.md#moss) | – | – | 1 |",
    ]


def test_a_block_is_written_between_its_lines_alone() -> None:
    text = "before\n<!-- x: written by python -m evals.claims -->\nold\n<!-- end of x -->\nafter\n"
    new = with_block(text, "x", "python -m evals.claims", ["new \\1"])
    assert new == "before\n<!-- x: written by python -m evals.claims -->\n\nnew \\1\n\n<!-- end of x -->\nafter\n"
    assert with_block(new, "x", "python -m evals.claims", ["new \\1"]) == new
    with pytest.raises(ValueError, match="there is no block 'y'"):
        with_block(text, "y", "python -m evals.claims", [])


def test_no_results_file_of_a_claim_names_a_place_of_a_machine() -> None:
    for name in claims.CLAIMS:
        for file in ("ledger.md", "results.md", "runs.jsonl", "tables.json"):
            text = Path(claims.FOLDER / name / file).read_text(encoding="utf-8")
            assert not re.search(r"(?<![\w.:/])/(?:tmp|home|root|work)/", text), file


@pytest.mark.parametrize(("value", "digits", "sign", "text"), [
    (999.97, 4, "", "1,000"), (0.00003, 4, "", "0.00003"), (123.4, 2, "", "123"), (999.7, 3, "+", "+1,000"),
    (12345.6, 4, "", "12,346"), (12.345, 3, "+", "+12.3"), (0.0, 4, "", "0"),
])  # fmt: skip
def test_numbers_for_people_have_no_exponents(value: float, digits: int, sign: str, text: str) -> None:
    assert number(value, digits, sign) == text
