import subprocess
from pathlib import Path

import pytest

from fedscale_ext.util import commit


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *names, "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a package in it, which is the one that is asked about."""
    folder = tmp_path / "checkout" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    git(tmp_path, "init", "-q", "checkout")
    monkeypatch.setattr(commit, "PACKAGE", folder)
    return folder


def test_a_checkouts_commit_and_whether_it_was_changed(package: Path):
    assert commit.commit() == "absent"  # not in the repository yet: an installed package in another's checkout
    git(package, "add", ".")
    git(package, "commit", "-qm", "all")
    head = git(package, "rev-parse", "HEAD")
    assert commit.commit() == head and len(head) == 40
    (package / "__init__.py").write_text("changed = 1\n")
    assert commit.commit() == f"{head}+changes"


def test_without_git_the_commit_is_absent(package: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    assert commit.commit() == "absent"
