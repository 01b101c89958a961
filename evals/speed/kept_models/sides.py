"""Run our job or HtFLlib once on a piece of work, and say what it took."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evals.speed import machine, monitor
from evals.speed.kept_models.work import Work
from evals.speed.measure import ROOT, failure, figures
from evals.speed.peers import missing, python_of
from fedscale_ext.core.errors import UserError

SIDES = {
    "ours": "ours, 2 executors of one thread",
    "limit": "the loop alone, 2 processes of one thread",
    "htfllib": "HtFLlib, threads as by default",
    "htfllib1": "HtFLlib, one thread",
}
CHANGED = {
    "shuffled": ("HtFLlib, samples shuffled", ("shuffled",)),
    "after": ("HtFLlib, prototypes after training", ("after",)),
    "weighted": ("HtFLlib, prototypes after training, averaged by samples", ("after", "weighted")),
    "all": ("HtFLlib with all three changes", ("shuffled", "after", "weighted")),
}
"""Sides that show where accuracies part: title, and what is changed; times have no use for them."""

PEER = "htfllib"
_OF_THIS_PACKAGE = ("ours", "limit")
LIMITED = ("local",)
"""Methods that the loop alone has: it exchanges nothing."""
_LIMIT_S = 7200.0


def check(sides: list[str], htfllib: Path | None, peers: Path) -> None:
    """Raise UserError if HtFLlib is asked for and cannot run."""
    if all(side in _OF_THIS_PACKAGE for side in sides):
        return
    if htfllib is None or not (htfllib / "system" / "flcore").is_dir():
        where = "" if htfllib is None else f", which {htfllib} is not"
        raise UserError(f"--htfllib must name a checkout of HtFLlib (github.com/TsingZ0/HtFLlib){where}")
    reason = missing(PEER, peers)
    if reason is not None:
        reason = reason.replace("--", "python -m evals.speed --", 1)
        raise UserError(f"HtFLlib's environment in {peers / PEER}: {reason}")


def measured(side: str, work: Work, htfllib: Path | None, peers: Path, idle_s: float) -> dict[str, Any]:
    """Run a side in ``work.out``, emptied before; ``status`` is "ok" or one sentence why there is no figure."""
    work = replace(work, out=work.out.absolute(), data=work.data.absolute())
    shutil.rmtree(work.out, ignore_errors=True)
    work.out.mkdir(parents=True)
    environment = {**os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment.pop("OMP_NUM_THREADS", None)
    if side in _OF_THIS_PACKAGE:
        python, script = Path(sys.executable), side
    else:
        assert htfllib is not None  # `check` has looked
        found = python_of(PEER, peers)
        assert found is not None
        python, script, work = found, "htfllib", replace(work, htfllib=htfllib.absolute())
        environment["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # it reads the models that it wrote itself as pickles
        work = replace(work, changes=CHANGED[side][1] if side in CHANGED else ())
        if side != "htfllib":
            environment["OMP_NUM_THREADS"] = "1"
    load = machine.wait_idle(idle_s)
    command = [str(python), "-m", f"evals.speed.kept_models.{script}", work.argument()]
    watched = monitor.run(command, env=environment, cwd=work.out, log=work.out / "output.log", limit_s=_LIMIT_S)
    facts = {"date": date.today().isoformat(), "torch": version("torch"), **load}
    if watched.code != 0:
        return {"status": failure(watched.code, work.out / "output.log"), **facts}
    told = json.loads((work.out / "rounds.json").read_text(encoding="utf-8"))
    return {"status": "ok", **figures(told, watched), **facts}


def commit(htfllib: Path | None) -> str:
    """The commit of a checkout of HtFLlib, "" where it does not tell."""
    if htfllib is None:
        return ""
    command = ["git", "-C", str(htfllib), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else ""


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a record; [] where there is none."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(path: Path, line: dict[str, Any]) -> None:
    """Add a line to a record."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
