import re
import subprocess
import sys
from pathlib import Path

import fedscale_ext
from fedscale_ext.config_reference import reference

ROOT = Path(__file__).resolve().parents[1]


def test_the_configuration_reference_is_current() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == reference()


def test_the_architecture_pages_twin_of_fedavg_runs(job_file: Path, tmp_path: Path, monkeypatch) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "class TwinAggregator" in block)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "twin.py").write_text(code, encoding="utf-8")
    info = tmp_path / "my_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[fedscale_ext.methods]\ntwin = my_package.twin:TwinAggregator\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    twin = fedscale_ext.run(job_file, method="twin", job_name="twin")
    plain = fedscale_ext.run(job_file, job_name="plain")
    assert twin["accuracy"]["per_client"] == plain["accuracy"]["per_client"]
    other = fedscale_ext.run(job_file, method="twin", job_name="other", **{"twin.power": 0.0})
    assert other["loss"] != plain["loss"]


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
    place = page.parent / path if path else page
    return place.exists() and (not anchor or (place.suffix == ".md" and anchor in anchors(place)))


def anchors(page: Path) -> set[str]:
    """What GitHub calls a page's headings: small letters, hyphens for spaces, numbers for repetitions."""
    found: list[str] = []
    for title in re.findall(r"^#{1,6} +(.+?)[ #]*$", prose(page), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        found.append(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return {f"{name}-{found[:i].count(name)}" if name in found[:i] else name for i, name in enumerate(found)}


def test_the_version_is_the_same_everywhere() -> None:
    version = fedscale_ext.__version__
    for file, line in {
        "setup.py": f'version="{version}",',
        "CITATION.cff": f"version: {version}",
        "CHANGELOG.md": f"## {version}",
    }.items():
        assert line in (ROOT / file).read_text(encoding="utf-8"), file


def test_the_ci_runs_the_readmes_test_command() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "test command" in text
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"<!-- (?:start|test) command -->\n```bash\n(.+)\n```", readme)) == 2


def test_the_package_says_what_it_is() -> None:
    done = subprocess.run([sys.executable, "-c", "import fedscale_ext; print(fedscale_ext.__version__)"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.strip() == fedscale_ext.__version__
