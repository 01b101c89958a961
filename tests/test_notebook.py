"""The example notebook and the page about Python do what they say, with two rounds for their twenty."""

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, Reader

from fedscale_ext.api.result import Picture, Result
from fedscale_ext.data.synthetic.synthesize import synthesize
from fedscale_ext.report import comparison
from fedscale_ext.server import records

NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"
PAGE = ROOT / "docs" / "python.md"


def sources() -> list[str]:
    """The notebook's cells of code, small enough for a test."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert "ROUNDS = 20" in code[0] and "writers=30" in code[0]
    code[0] = code[0].replace("ROUNDS = 20", "ROUNDS = 2").replace("writers=30", "writers=14")
    return code


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line, as a notebook shows it."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def test_its_cells_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "plot_job", lambda folder: folder / "plot.png")
    monkeypatch.setattr(comparison, "plots", lambda arms: {})  # the report's tests draw
    names: dict[str, Any] = {}
    shown = [run(source, names) for source in sources()]
    result = next(value for value in shown if isinstance(value, Result))
    assert result._repr_markdown_().startswith("# quickstart\n") and "GENERATED" in result._repr_markdown_()
    picture = next(value for value in shown if isinstance(value, Picture))
    assert picture._repr_png_().startswith(b"\x89PNG")
    accuracies = next(value for value in shown if isinstance(value, dict))
    assert accuracies.keys() == {"quickstart", "plain"}
    assert any(isinstance(value, Path) and value.name == "report.html" for value in shown)


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("nbclient", "ipykernel"))), reason="nbclient or ipykernel is not installed"
)
def test_it_runs_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, source in zip(code, sources(), strict=True):
        cell.source = source
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output.get("name") == "stderr" for output in outputs), "progress belongs into the cell's output"
    said = "".join(output.get("text", "") for output in outputs)
    assert "round 2/2" in said


def test_it_is_kept_without_outputs():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


def test_the_page_about_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reader = Reader(tmp_path, monkeypatch)
    synthesize(
        "femnist", tmp_path / "data" / "femnist_generated", writers=14, samples_per_class=1, test_fraction=0.2, seed=1
    )
    reader.follow(PAGE)
    assert "quickstart 0." in reader.said and "the weakest device is served m0" in reader.said
    assert (tmp_path / "job.png").is_file()
