"""Runs a page of the documentation as its reader would: its blocks of code, in order, in an empty folder.

A block whose first line is a comment with a file's name is written there. Of the others, bash is run line by line and
Python as it stands; blocks of another kind, such as text, are only read. To save processes, `fedscale` (but
`driver start`, which trains two rounds), `python -m pytest` and Python run in this one, and `pip install -e …` becomes
what it comes to: the package's metadata, and its folder in the search path.
"""

import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from fedscale_ext import models
from fedscale_ext.cli.main import main
from fedscale_ext.server import records

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|toml|yml))\n")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and content of each block of code."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


class Reader:
    """Does what a page says, within the folder ``home``; ``said`` is what its commands and Python printed."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home, self.here, self.said, self._patch = home, home, "", patch
        patch.setenv("FEDSCALE_EXT_STATE", str(home / "state"))
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # equal sizes within a second would pass for unchanged
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(records, "plot_job", lambda folder: folder / "plot.png")  # its picture is most of a tiny job
        patch.chdir(home)
        self._loaded = set(sys.modules)

    def follow(self, page: Path) -> None:
        """Every block of the page."""
        models.registry._families.cache_clear()
        names = {"__name__": "__main__"}
        try:
            for language, content in blocks(page):
                named = _FILE.match(content)
                if named:
                    file = self.here / named[1]
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(content, encoding="utf-8")
                elif language == "bash":
                    for line in content.replace("\\\n", "").splitlines():
                        self._do(shlex.split(line, comments=True), line)
                elif language == "python":
                    with redirect_stdout(out := StringIO()):
                        exec(compile(content, f"{page.name}", "exec"), names)
                    self.said += out.getvalue()
        finally:
            for name in set(sys.modules) - self._loaded:  # of the page's own packages
                if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(self.home):
                    del sys.modules[name]
            models.registry._families.cache_clear()

    def _do(self, words: list[str], line: str) -> None:
        if words[:1] == ["cd"]:
            self.here = (self.here / words[1]).resolve()
            self._patch.chdir(self.here)
        elif words[:3] == ["pip", "install", "-e"]:
            self._install()
        elif words[:1] == ["fedscale"] and words[1:3] != ["driver", "start"]:
            self._fedscale(words)
        elif words[:3] == ["python", "-m", "pytest"]:
            with redirect_stdout(out := StringIO()):
                code = pytest.main(["-q", "-p", "no:cacheprovider", *words[3:]])
            assert code == 0, out.getvalue()
        elif words:
            start = [sys.executable, "-m", "fedscale_ext.cli", *words[1:], "--set", "rounds=2"]
            command = start if words[0] == "fedscale" else ["bash", "-c", line]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            self.said += done.stdout

    def _install(self) -> None:
        setup = "from setuptools import setup; setup()"
        subprocess.run([sys.executable, "-c", setup, "-q", "egg_info"], check=True, timeout=120)
        if str(self.here) not in sys.path:
            sys.path.insert(0, str(self.here))
            self._patch.setenv("PYTHONPATH", os.pathsep.join([str(self.here), str(ROOT)]))
        models.registry._families.cache_clear()  # another process would look for families anew

    def _fedscale(self, words: list[str]) -> None:
        self._patch.setattr(sys, "argv", words)
        with redirect_stdout(out := StringIO()), pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code, f"{words}\n{out.getvalue()}"
        self.said += out.getvalue()
