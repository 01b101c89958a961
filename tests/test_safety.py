"""What must not stand in the package or its evals, by their syntax trees: nothing that executes what it reads."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fedscale_ext"
FILES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "evals").rglob("*.py"), *ROOT.glob("*.py")])

# the one restricted reader, and scripts that make traces in FedScale's own format to see how they are read
ALLOWED = {
    "fedscale_ext/population/traces/reading.py": {"module pickle", "module pickletools"},
    "evals/speed/population.py": {"module pickle", "pickle.dumps"},
    "evals/reliability/decoders.py": {"module pickle", "pickle.dumps"},
}
MODULES = {
    "pickle", "_pickle", "cPickle", "pickletools", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle",
    "code", "codeop",
}  # fmt: skip
CALLS = {
    "eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec", "builtins.compile", "os.system",
    "os.popen", "commands.getoutput", "subprocess.getoutput", "subprocess.getstatusoutput", "tempfile.mktemp",
    "yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.full_load_all", "yaml.unsafe_load_all",
    "numpy.load", "pandas.read_pickle", "torch.jit.load", "torch.package.PackageImporter",
}  # fmt: skip


def offences(source: str) -> set[str]:
    """What a source does that is not allowed, each in a word or two."""
    tree = ast.parse(source)
    full: dict[str, str] = {}  # local name -> the dotted name that it stands for
    forbidden: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                full[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                forbidden |= _module(alias.name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                full[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                forbidden |= _module(node.module or "") | _module(alias.name if node.module == "six.moves" else "")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            forbidden |= _call(node, full)
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            name = _name(node, full)  # also where it is handed on without being called
            forbidden |= {name} & (CALLS - {"numpy.load", "compile"}) | (
                {name} if name.startswith("pickle.") else set()
            )
    return forbidden - {"pickle.Unpickler"}


def _module(name: str) -> set[str]:
    return {f"module {name.split('.')[0]}"} if name.split(".")[0] in MODULES else set()


def _name(node: ast.expr, full: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value, full)}.{node.attr}"
    return full.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def _call(call: ast.Call, full: dict[str, str]) -> set[str]:
    name = _name(call.func, full)
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    forbidden = {name} & (CALLS - {"numpy.load"})
    if keywords.get("shell", "False") != "False":
        forbidden.add("shell")
    if "allow_pickle" in keywords and keywords["allow_pickle"] != "False":
        forbidden.add("allow_pickle")
    if name in ("numpy.load", "numpy.lib.npyio.NpzFile", "numpy.lib.format.read_array"):
        # what stands third in place is allow_pickle
        forbidden |= (
            {"allow_pickle"} if len(call.args) > 2 or keywords.get("allow_pickle", "False") != "False" else set()
        )
    if name == "torch.load" and keywords.get("weights_only") != "True":
        forbidden.add("torch.load")
    dynamic = {"importlib.import_module", "importlib.reload", "importlib.__import__"}
    if name in dynamic and call.args and isinstance(call.args[0], ast.Constant):
        forbidden |= _module(str(call.args[0].value))
    if name == "getattr" and len(call.args) > 1:
        base, attribute = _name(call.args[0], full), call.args[1]
        if base in ("builtins", "__builtins__"):
            forbidden.add("getattr of builtins")
        elif isinstance(attribute, ast.Constant):
            forbidden |= {f"{base}.{attribute.value}"} & CALLS
    if None in keywords and name.startswith("subprocess."):
        forbidden.add("shell")  # **options may hold anything
    return forbidden


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_executes_what_it_reads(path: Path) -> None:
    forbidden = offences(path.read_text(encoding="utf-8"))
    assert forbidden <= ALLOWED.get(path.relative_to(ROOT).as_posix(), set())


def test_the_exceptions_are_used_and_narrow() -> None:
    for name, allowed in ALLOWED.items():
        assert offences((ROOT / name).read_text(encoding="utf-8")) == allowed
    # its unpickler gets at nothing: it resolves no name
    reader = ast.parse((PACKAGE / "population" / "traces" / "reading.py").read_text(encoding="utf-8"))
    (unpickler,) = [node for node in ast.walk(reader) if isinstance(node, ast.ClassDef) and node.bases
                    and ast.unparse(node.bases[0]) == "pickle.Unpickler"]  # fmt: skip
    hooks = {node.name: node for node in unpickler.body if isinstance(node, ast.FunctionDef)}
    assert set(hooks) == {"find_class", "persistent_load"}
    assert all(len(hook.body) == 1 and isinstance(hook.body[0], ast.Raise) for hook in hooks.values())


BAD = [
    "import pickle",
    "import pickle as p",
    "import _pickle",
    "import cPickle",
    "from pickle import loads",
    "from pickle import Unpickler as U",
    "import dill",
    "import cloudpickle",
    "import marshal",
    "import shelve",
    "import joblib\njoblib.load('x')",
    "from joblib import load",
    "import importlib\nimportlib.import_module('pickle')",
    "__import__('pickle')",
    "eval('1')",
    "x = eval",
    "map(eval, 'abc')",
    "exec('1')",
    "exec(compile('1', 'x', 'exec'))",
    "compile(source, 'x', 'exec')",
    "import builtins\nbuiltins.eval('1')",
    "from builtins import eval as e\ne('1')",
    "import builtins\ngetattr(builtins, 'ev' + 'al')('1')",
    "import yaml\nyaml.load(x)",
    "import yaml\nyaml.load(x, Loader=yaml.Loader)",
    "import yaml as y\ny.load(x, Loader=y.SafeLoader)",
    "from yaml import load\nload(x)",
    "import yaml\nyaml.full_load(x)",
    "import yaml\nyaml.unsafe_load(x)",
    "import subprocess\nsubprocess.run('x', shell=True)",
    "import subprocess as s\ns.Popen('x', shell=yes)",
    "from subprocess import run\nrun('x', shell=1)",
    "import subprocess\nsubprocess.run('x', **options)",
    "import subprocess\nsubprocess.getoutput('x')",
    "import os\nos.system('x')",
    "from os import system\nsystem('x')",
    "import os\nos.popen('x')",
    "import os\ngetattr(os, 'system')('x')",
    "import torch\ntorch.load('x')",
    "import torch\ntorch.load('x', weights_only=False)",
    "import torch as t\nt.load('x', weights_only=flag)",
    "from torch import load\nload('x')",
    "import numpy as np\nnp.load('x', allow_pickle=True)",
    "import numpy as np\nnp.load('x', None, True)",
    "from numpy import load\nload('x', allow_pickle=yes)",
    "import numpy as np\nnp.lib.npyio.NpzFile('x', allow_pickle=True)",
    "import tempfile\ntempfile.mktemp()",
    "from tempfile import mktemp\nmktemp()",
    "import pandas\npandas.read_pickle('x')",
    "def f():\n    import pickle\n",
    "try:\n    import cPickle\nexcept ImportError:\n    pass\n",
]
GOOD = [
    "model.eval()",
    "import re\nre.compile('x')",
    "import torch\ntorch.compile(model)\ntorch.load('x', weights_only=True)",
    "import json\njson.loads('1')\njson.load(file)",
    "import numpy as np\nnp.load('x', allow_pickle=False)\nnp.load('x', mmap_mode='r')",
    "import subprocess\nsubprocess.run(['x'], shell=False)",
    "import tempfile\ntempfile.mkdtemp()\ntempfile.mkstemp()",
    "import yaml\nyaml.safe_load(x)",
    "import importlib\nimportlib.import_module('json')",
    "from .pickles import jar",
    "getattr(model, 'eval')()",
]


@pytest.mark.parametrize("source", BAD)
def test_each_of_these_is_found(source: str) -> None:
    assert offences(source)


@pytest.mark.parametrize("source", GOOD)
def test_none_of_these_is_meant(source: str) -> None:
    assert not offences(source)


def test_only_compat_knows_fedscales_import_troubles() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.name != "compat.py":
            text = path.read_text(encoding="utf-8")
            assert "sys.modules[" not in text, path
            assert "torch.library" not in text, path
