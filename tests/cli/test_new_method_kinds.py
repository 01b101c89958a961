"""Each kind of ``fedscale methods new`` works as it is written: by the real command, its own tests and its job."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from fedscale_ext.cli.new_method import Kind

ROOT = Path(__file__).resolve().parents[2]


def run(*command: object, folder: Path, home: Path) -> str:
    """What a command of the reader's prints; it must end well."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "FEDSCALE_EXT_STATE": str(home / "state")}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated digits of the written README."""
    home = tmp_path_factory.mktemp("digits")
    run("-m", "fedscale_ext.cli", "dataset", "synthesize", "digits", "--writers", 20, folder=home, home=home)
    return home / "data" / "digits_generated"


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_new_method_passes_its_tests_and_trains(kind: Kind, tmp_path: Path, digits: Path) -> None:
    run("-m", "fedscale_ext.cli", "methods", "new", "fresh_one", "--kind", kind, folder=tmp_path, home=tmp_path)
    folder = tmp_path / "fresh_one"
    run("-c", "from setuptools import setup; setup()", "-q", "egg_info", folder=folder, home=tmp_path)
    tested = run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=folder, home=tmp_path)
    assert " passed" in tested and "skipped" not in tested
    keys = [each for key in ("rounds=2", f"data_dir={digits}") for each in ("--set", key)]
    run("-m", "fedscale_ext.cli", "driver", "start", "fresh_one.yml", *keys, folder=folder, home=tmp_path)
    assert list(folder.glob("logs/**/summary.json")) or list(folder.glob("**/summary.json"))
    listed = run("-m", "fedscale_ext.cli", "methods", folder=folder, home=tmp_path)
    assert "fresh_one" in listed
