import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import fedscale_ext
from fedscale_ext.config.job_config import load_config
from fedscale_ext.config.method_pages import blocks, with_hyperparameters
from fedscale_ext.config.methods import method_class, method_names
from fedscale_ext.config.presets import method_preset
from fedscale_ext.config.reference import reference
from fedscale_ext.models import cost
from fedscale_ext.models.files import configured_spec

ROOT = Path(__file__).resolve().parents[1]


def test_the_configuration_reference_is_current() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == reference()


def test_the_hyperparameters_of_the_methods_pages_are_current() -> None:
    pages = {page.name: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "methods").glob("*.md")}
    assert [name for name, page in pages.items() if page != with_hyperparameters(page)] == []


def test_each_method_has_its_hyperparameters_on_the_page_that_the_index_links() -> None:
    folder = ROOT / "docs" / "methods"
    page_of = pages_of_methods()
    has_some = {name for name in method_names() if dataclasses.fields(method_class(name).Params)}
    for name in method_names():
        page = (folder / page_of[name]).read_text(encoding="utf-8")
        assert blocks(page).count(name) == (name in has_some), name
        assert f"fedscale driver start {name} " in page, name


def test_the_module_of_each_paper_names_the_page_that_leads_from_the_paper_to_the_code() -> None:
    for name, page in pages_of_methods().items():
        if name != "local":  # no paper
            module = sys.modules[method_class(name).__module__]
            assert f"\nPaper to code, section by section: docs/methods/{page}.\n" in (module.__doc__ or ""), name


def pages_of_methods() -> dict[str, str]:
    """The page of each method, as the index links it."""
    index = (ROOT / "docs" / "methods" / "index.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| \[`(\w+)`\]\((\w+\.md)\)", index, re.M))


def test_the_pages_of_methods_have_one_form() -> None:
    headings = ["Idea", "From the paper to the code", "Hyperparameters", "Run it", "What came out", "Departures"]
    pages = [page for page in (ROOT / "docs" / "methods").glob("*.md") if page.name != "index.md"]
    assert len(pages) > 4
    for page in pages:
        assert re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.M) == headings, page.name


def test_the_functions_that_the_methods_pages_name_are_in_the_linked_files() -> None:
    for page in (ROOT / "docs" / "methods").glob("*.md"):
        section = page.read_text(encoding="utf-8").partition("## From the paper to the code\n")[2].partition("\n#")[0]
        for item in re.split(r"\n(?=- )", section):
            files = [page.parent / file for file in re.findall(r"\]\((.+?\.py)\)", item)]
            defined = {name for file in files for name in definitions(file)}
            named = set(re.findall(r"(?<!\[)`([A-Za-z_.]{2,})`", item)) - set(method_names())
            assert {part for name in named for part in name.split(".")} <= defined, (page.name, item)


def definitions(file: Path) -> list[str]:
    """Names of the functions and classes that a file defines."""
    return re.findall(r"^ *(?:def|class) (\w+)", file.read_text(encoding="utf-8"), re.M)


def test_the_configuration_reference_sends_nobody_into_the_code() -> None:
    assert not re.findall(r":(?:class|func|meth|mod):`[^`]*`", reference())


def test_the_guides_twin_of_fedavg_runs(job_file: Path, tmp_path: Path, monkeypatch) -> None:
    page = (ROOT / "docs" / "adding-a-method.md").read_text(encoding="utf-8")
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
    assert "test command" in text and all(check in text for check in ("ruff check", "ruff format", "mypy", "links"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"<!-- (?:start|test) command -->\n```bash\n(.+)\n```", readme)
    assert len(commands) == 2 and commands[1].endswith(" && .venv/bin/python -m pytest")


def test_the_methods_page_has_each_method_with_the_data_of_its_paper() -> None:
    page = (ROOT / "docs" / "methods" / "index.md").read_text(encoding="utf-8")
    datasets = dict(re.findall(r"^\| \[`(\w+)`\].*\| (.+?) \|$", page, re.M))
    assert datasets == {name: method_preset(name).data for name in method_names()}


def test_the_methods_page_has_the_families_of_the_command() -> None:
    page = (ROOT / "docs" / "methods" / "index.md").read_text(encoding="utf-8")
    families = dict(re.findall(r"^\| \[`(\w+)`\]\S+ \| (.+?) \|", page, re.M))
    assert families == {name: vars(method_class(name))["about"].family for name in method_names()}


def test_the_methods_pages_have_the_figures_and_verdicts_of_the_claims() -> None:
    table = (ROOT / "evals" / "claims.md").read_text(encoding="utf-8")
    claims = {cells[1].split("](")[1].split(")")[0]: cells for cells in rows(table) if "ledger.md#" in cells[1]}
    shown = [cells for page in (ROOT / "docs" / "methods").glob("*.md") for cells in rows(page.read_text("utf-8"))]
    shown = [cells for cells in shown if "ledger.md#" in cells[1]]
    assert len(shown) > 10
    for _, claim, paper, ours, verdict, _ in shown:
        recorded = claims[re.sub(r".*\]\(\.\./\.\./evals/|\)$", "", claim)]
        assert (paper, verdict) == (recorded[5], recorded[3]), claim
        assert recorded[4].startswith(ours), claim


def rows(page: str) -> list[list[str]]:
    """Cells of each line of a page's tables, with empty ones at both ends."""
    return [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("|")]


def test_the_presets_that_the_documents_name_compose() -> None:
    patterns = ("*.md", "docs/**/*.md", "evals/**/*.md", "benchmark_configs/*.md")
    texts = [page.read_text(encoding="utf-8") for pattern in patterns for page in ROOT.glob(pattern)]
    pairs = {pair for text in texts for pair in re.findall(r"([a-z_0-9]+) --on ([\w.]+)", text)}
    assert len(pairs) > 5
    for method, data in pairs:
        load_config(f"{method} --on {data}")


def test_the_readme_is_short_and_names_each_method() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 120
    table = readme[readme.index("## Methods") : readme.index("## What came out")]
    assert {name for name in method_names() if f"`{name}`" in table} == set(method_names())


def test_specs_of_the_documents_are_models(tmp_path: Path) -> None:
    blocks = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "models.md").read_text(encoding="utf-8"), re.S)
    assert [json.loads(block)["family"] for block in blocks] == ["nasbench201", "multi_exit", "supernet"]
    for block in blocks:
        (tmp_path / "model.json").write_text(block, encoding="utf-8")
        fields = json.loads(block)["fields"]
        shape, classes = fields.get("input_shape", (3, 32, 32)), fields.get("num_classes", 10)
        assert cost(configured_spec(str(tmp_path / "model.json"), tuple(shape), classes)).forward_macs > 0


def test_the_package_says_what_it_is() -> None:
    done = subprocess.run([sys.executable, "-c", "import fedscale_ext; print(fedscale_ext.__version__)"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.strip() == fedscale_ext.__version__
