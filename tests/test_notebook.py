"""The example notebook and the page about Python do what they say, in two rounds; the notebook has its outputs."""

import ast
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, Reader

from fedscale_ext.api.result import Picture
from fedscale_ext.data.synthetic.synthesize import synthesize
from fedscale_ext.report.plots import comparison_plots
from fedscale_ext.server import records

NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"
PAGE = ROOT / "docs" / "python.md"
MOST_BYTES = 150_000
SMALLER = {"ROUNDS = 80": "ROUNDS = 2", "--writers 200": "--writers 24 --samples-per-class 2"}


def code_cells() -> list[dict[str, Any]]:
    """The notebook's cells of code, as they are in the file."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def sources() -> list[str]:
    """The code of these cells, small enough for a test."""
    code = ["".join(cell["source"]) for cell in code_cells()]
    for shipped, small in SMALLER.items():
        assert sum(shipped in source for source in code) == 1
        code = [source.replace(shipped, small) for source in code]
    return code


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line, as a notebook shows it."""
    if source.startswith("!"):
        command = [sys.executable, "-m", "fedscale_ext.cli", *shlex.split(source)[1:]]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    body = ast.parse(re.sub(r"%pip.*", "raise AssertionError('the package is installed')", source)).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def test_its_cells_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(records, "plot_job", lambda folder: folder / "plot.png")
    monkeypatch.setattr(comparison_plots, "plots", lambda arms: {})  # the report's tests draw
    names: dict[str, Any] = {}
    shown = [run(source, names) for source in sources()]
    accuracies = next(value for value in shown if isinstance(value, dict))
    assert accuracies.keys() == {"fedavg_digits", "splitmix_digits"}
    quarters = next(value for value in shown if hasattr(value, "to_dict"))
    assert list(quarters.index) == ["weakest", "second", "third", "strongest"]
    picture = next(value for value in shown if isinstance(value, Picture))
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert Path("report/report.html").is_file()


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("nbclient", "ipykernel"))), reason="nbclient or ipykernel is not installed"
)
def test_it_runs_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts"), prepend=":")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, source in zip(code, sources(), strict=True):
        cell.source = source.replace("progress=False", "progress=True")
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output.get("name") == "stderr" for output in outputs), "progress belongs into the cell's output"
    said = "".join(output.get("text", "") for output in outputs)
    assert "round 2/2" in said and "\x1b" not in said


def test_it_is_kept_with_the_outputs_of_one_run():
    cells = code_cells()
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert [bool(cell["outputs"]) for cell in cells] == [False] + [True] * (len(cells) - 1)  # installing prints nothing
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "execute_result"}
    assert not any(output.get("name") == "stderr" for output in outputs)
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert kinds.count("image/png") == 1 and kinds.count("text/html") > 1
    assert NOTEBOOK.stat().st_size < MOST_BYTES


def test_its_outputs_tell_nothing_of_the_machine():
    outputs = [output for cell in code_cells() for output in cell["outputs"]]
    texts = [output.get("text", []) for output in outputs]
    texts += [text for output in outputs for kind, text in output.get("data", {}).items() if kind != "image/png"]
    said = "\n".join(line for text in texts for line in ([text] if isinstance(text, str) else text))
    assert not re.findall(r"/(?:root|work|home|tmp|Users|usr|opt)/\S*", said)
    assert "\x1b" not in said


def test_it_imports_public_names_alone():
    imported = [
        line.split()[1] for source in sources() for line in source.splitlines() if re.match(r"\s*(from|import) ", line)
    ]
    assert imported == ["importlib.util", "pandas", "fedscale_ext"]


def test_the_page_about_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reader = Reader(tmp_path, monkeypatch)
    synthesize(
        "digits", tmp_path / "data" / "digits_generated", writers=24, samples_per_class=2, test_fraction=0.2, seed=1
    )
    reader.follow(PAGE)
    assert "splitmix_digits 0." in reader.said
    assert "the weakest device is served b0 and the strongest b0+b1" in reader.said
    assert (tmp_path / "job.png").is_file()
