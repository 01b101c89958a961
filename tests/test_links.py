"""Links between pages lead somewhere, and cells of their tables are short."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_links_between_pages_lead_somewhere() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}: {target}" for page in pages() for target in links(page) if not leads(page, target)
    ]
    assert len(pages()) > 20
    assert not wrong


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`: *three*\n[a](#one-two-three) [b](page.md#same-1) [c](#four) ![d](gone.png)\n## Same\n## Same\n"
        "```bash\n# Four\n[e](gone.md)\n```\n`[f](gone.md)` [g](https://example.org/#x) [h][ref]\n\n[ref]: gone.md\n"
    )
    assert [target for target in links(page) if not leads(page, target)] == ["#four", "gone.png", "gone.md"]


def test_no_page_has_two_versions_of_a_passage() -> None:
    """What a merge leaves behind where it could not decide."""
    marks = re.compile(r"^(<{7}|>{7}) ", re.M)
    assert not [str(page) for page in pages() if marks.search(page.read_text(encoding="utf-8"))]


def test_no_cell_of_a_table_has_more_than_twelve_words() -> None:
    long = [f"{page.relative_to(ROOT)}: {cell}" for page in pages() for cell in long_cells(prose(page))]
    assert not long


def test_a_long_cell_is_noticed() -> None:
    twelve = "one two three four five six seven eight nine ten [eleven twelve](page.md)"
    assert long_cells(f"| a | {twelve} |\n| {twelve} \\| thirteen | b |\n") == [rf"{twelve} \| thirteen"]


def long_cells(text: str) -> list[str]:
    """Cells of more than twelve words; signs such as / and the target of a link are none."""
    lines = [line.strip()[1:-1] for line in text.splitlines() if line.startswith("|")]
    cells = [cell.strip() for line in lines for cell in re.split(r"(?<!\\)\|", line)]
    words = {cell: re.sub(r"\]\([^)]*\)", "]", cell).split() for cell in cells}
    return [cell for cell in cells if sum(bool(re.search(r"\w", word)) for word in words[cell]) > 12]


def pages() -> list[Path]:
    folders = ("docs", "evals", "device_traces", "benchmark_configs", "fedscale_ext", "tests")
    return [*ROOT.glob("*.md"), *(page for folder in folders for page in ROOT.glob(f"{folder}/**/*.md"))]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def links(page: Path) -> list[str]:
    """Targets of links and pictures, in order, those of references last."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.M)


def leads(page: Path, target: str) -> bool:
    """Whether there is what a link within this repository names: a file, and in a page a heading."""
    if re.match(r"[a-z]+:", target):
        return True
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    return file.exists() and (not anchor or (file.suffix == ".md" and anchor in anchors(file)))


def anchors(page: Path) -> set[str]:
    """What GitHub calls a page's headings: small letters, hyphens for spaces, numbers for repetitions."""
    names: list[str] = []
    for title in re.findall(r"^#{1,6} +(.+?)[ #]*$", prose(page), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        names.append(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return {f"{name}-{names[:i].count(name)}" if name in names[:i] else name for i, name in enumerate(names)}
