"""Completion, as bash, zsh and fish ask for it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedscale_ext.cli import complete
from fedscale_ext.driver import jobs

from .conftest import ROOT

Complete = Callable[..., list[str]]


@pytest.fixture
def completed(call, monkeypatch) -> Complete:
    """What completes the last word in a shell; an empty one where that is a new word."""

    def run(*words: str, shell: str = "fish") -> str:
        line = " ".join(["fedscale", *words])
        monkeypatch.setenv("_FEDSCALE_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        code, out, err = call()
        assert (code, err) == (0, "")
        return out

    return run


@pytest.mark.parametrize(
    ("words", "completion"),
    [
        (("dri",), "driver"),
        (("driver", "sta"), "status"),
        (("driver", "start", "quick"), "quickstart"),
        (("driver", "start", "hetero"), "heterofl"),
        (("driver", "check", "heterofl", "--on", "spee"), "speech"),
        (("config", "show", "hetero"), "heterofl"),
        (("config", "show", "heterofl", "--on", "sv"), "svhn"),
        (("driver", "start", "quickstart", "--set", "local_s"), "local_steps="),
        (("driver", "start", "quickstart", "--set", "dp_noise"), "dp_noise_multiplier="),
        (("dataset", "download", "cifar"), "cifar10"),
        (("dataset", "import", "x.npz", "--data-set", "fem"), "femnist"),
        (("dataset", "import", "x.npz", "--form"), "--format"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_words_are_completed(completed, words, completion, shell):
    out = completed(*words, shell=shell)
    # zsh gets a call of its own with quoted words, fish each with its help behind a tab
    assert completion in out.replace('"', "\t").replace("\n", "\t").split("\t")


@pytest.mark.parametrize(
    "command", [("driver", "stop"), ("driver", "logs"), ("report",), ("methods", "show")], ids=" ".join
)
def test_jobs_are_completed(completed, state, command):
    for name in ("alpha", "alto", "beta"):
        (state / "jobs" / name).mkdir(parents=True)
        (state / "jobs" / name / "job.json").write_text(json.dumps({}))
    assert completed(*command, "al").split() == ["alpha", "alto"]


def test_what_fails_is_silence(monkeypatch):
    def fail() -> list[str]:
        raise OSError("no state")

    monkeypatch.setattr(jobs, "names", fail)
    assert complete.jobs("a") == []


def test_where_nothing_is_known_the_shell_completes_files(completed):
    assert completed("driver", "start", "./").split() == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_given_and_its_syntax_is_right(call, monkeypatch, tmp_path: Path, shell):
    monkeypatch.setenv("_FEDSCALE_COMPLETE", f"source_{shell}")
    code, script, _ = call()
    assert code == 0 and "_FEDSCALE_COMPLETE" in script and f"complete_{shell}" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so its syntax is not checked")
    (tmp_path / "script").write_text(script)
    assert subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True).stderr == b""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_for_real(call, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("_FEDSCALE_COMPLETE", "source_bash")
    _, script, _ = call()
    program = tmp_path / "fedscale"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedscale_ext.cli "$@"\n')
    program.chmod(0o755)
    typed = "COMP_WORDS=(fedscale driver start quicks); COMP_CWORD=3; f=$(complete -p fedscale); f=${f##*-F }; ${f% *} "
    environment = {key: value for key, value in os.environ.items() if not key.startswith("_FEDSCALE")}
    environment |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", f'{script}\n{typed} fedscale; echo "${{COMPREPLY[@]}}"'],
                          env=environment, capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.stdout.split() == ["quickstart"], done.stderr
