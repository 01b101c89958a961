"""What must not stand in the package, by its syntax tree."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "fedscale_ext"
FILES = sorted(PACKAGE.rglob("*.py"))


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_executes_what_it_reads(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    restricted_reader = path.parent.name == "population"
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert restricted_reader or name.split(".")[0] not in ("pickle", "dill", "cloudpickle", "marshal", "shelve")
    for name, call in calls(tree):
        assert name not in ("eval", "exec", "os.system", "yaml.load", "pickle.load", "pickle.loads"), name
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert keywords.get("shell", "False") == "False"
        assert name != "torch.load" or keywords.get("weights_only") == "True"
        assert keywords.get("allow_pickle", "False") == "False"


def test_only_one_file_of_the_population_touches_pickle() -> None:
    users = [path for path in FILES if "import pickle" in path.read_text(encoding="utf-8")]
    assert [path.parent.name for path in users] == ["population"]


def test_only_compat_knows_fedscales_import_troubles() -> None:
    for path in FILES:
        if path.name != "compat.py":
            text = path.read_text(encoding="utf-8")
            assert "sys.modules[" not in text, path
            assert "torch.library" not in text, path
