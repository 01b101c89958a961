"""``fedscale methods new``: what it writes and what it refuses. docs/adding-a-method.md, run as a test, uses it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from fedscale_ext.cli import new_method
from fedscale_ext.cli.new_method import Kind
from fedscale_ext.core.errors import UserError

FILES = ["README.md", "my_avg.yml", "my_avg/__init__.py", "my_avg/aggregator.py", "my_avg/client.py",
         "pyproject.toml", "tests/conftest.py", "tests/test_jobs.py", "tests/test_my_avg.py"]  # fmt: skip
CLIENTS = {"averaging", "personal"}  # kinds with clients of their own


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_it_writes_the_package_under_the_users_name(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("methods", "new", "my_avg")
    assert (code, err) == (0, "")
    assert below(tmp_path / "my_avg") == FILES
    assert set(out.splitlines()) >= {f"my_avg/{file}" for file in FILES}
    assert "  cd my_avg\n  pip install -e '.[test]'\n" in out and out.endswith("fedscale driver start my_avg.yml\n")
    texts = "".join((tmp_path / "my_avg" / file).read_text() for file in FILES)
    assert "mymethod" not in texts.lower() and "class MyAvgAggregator" in texts
    assert 'my_avg = "my_avg.aggregator:MyAvgAggregator"' in texts
    assert os.listdir(tmp_path) == ["my_avg"]


@pytest.mark.parametrize("kind", get_args(Kind))
def test_each_kind_has_its_files_and_hyperparameters(call, tmp_path, kind):
    assert call("methods", "new", "my_avg", "-o", tmp_path / "out", "--kind", kind)[0] == 0
    files = [file for file in FILES if kind in CLIENTS or file != "my_avg/client.py"]
    assert below(tmp_path / "out") == files
    job = (tmp_path / "out" / "my_avg.yml").read_text()
    assert "  - my_avg." in job and "what the kind adds" not in job


def test_a_kind_that_does_not_exist_is_one_sentence(call, tmp_path):
    code, out, err = call("methods", "new", "my_avg", "-o", tmp_path / "out", "--kind", "sum")
    assert (code, out) == (2, "") and "averaging" in err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", get_args(Kind))
def test_its_code_is_clean_under_the_longest_name(tmp_path, kind):
    new_method.write_skeleton("a" * new_method._LONGEST, tmp_path / "out", kind)
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length=120", "--select=E,F,W,B,UP", "."],
        cwd=tmp_path / "out", capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_what_is_there_stays_as_it_is(call, tmp_path):
    (tmp_path / "own").mkdir()
    assert call("methods", "new", "my_avg", "-o", tmp_path / "own")[0] == 0  # an empty folder is as good as none
    (tmp_path / "own" / "my_avg.yml").write_text("mine")
    for path in (tmp_path / "own", tmp_path / "own" / "my_avg.yml"):
        code, out, err = call("methods", "new", "my_avg", "-o", path)
        assert (code, out) == (2, "") and len(err.splitlines()) == 1 and "there already" in err
    assert (tmp_path / "own" / "my_avg.yml").read_text() == "mine"
    code, _, err = call("methods", "new", "my_avg", "-o", tmp_path / "own" / "my_avg.yml" / "below")
    assert code == 2 and "cannot be written" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("out", [".", "link", "link/new"])
def test_an_empty_folder_is_filled_and_stays_the_same(call, tmp_path, monkeypatch, out):
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("own")
    monkeypatch.chdir(tmp_path / "own" if out == "." else tmp_path)
    before = (tmp_path / "own").stat()
    assert call("methods", "new", "my_avg", "-o", out)[0] == 0
    assert below(Path(out)) == FILES and sorted(os.listdir(tmp_path)) == ["link", "own"]
    after = (tmp_path / "own").stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize(
    "name", ["", "My", "my-method", "2fast", "_mine", "a__b", "end_", "é", "a b", "../up", "a" * 21]
)
def test_a_name_that_cannot_be_one_is_one_sentence(call, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("methods", "new", "--", name)
    assert (code, out) == (2, "") and len(err.splitlines()) == 1 and "cannot name a method" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "why"),
    [("fedavg", "already"), ("class", "choose another"), ("json", "choose another"), ("numpy", "choose another"),
     ("tests", "choose another")],
)  # fmt: skip
def test_a_name_that_means_something_else_is_refused(tmp_path, name, why):
    with pytest.raises(UserError, match=why):
        new_method.write_skeleton(name, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_of_a_skeleton_that_could_not_be_written(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(new_method, "_write", full)
    with pytest.raises(UserError, match="No space left"):
        new_method.write_skeleton("my_avg", tmp_path / "out")
    assert not list(tmp_path.iterdir())
