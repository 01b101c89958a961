"""The papers' scripts that check the equations of a finished job by themselves, as tests run them."""

import subprocess
import sys
from pathlib import Path


def script_of(paper: str) -> Path:
    """The script of a paper."""
    return Path(__file__).resolve().parents[1] / "evals" / paper / "check_equations.py"


def run_script(paper: str, argument: Path | str) -> tuple[int, str]:
    """Exit code and all output of a paper's script on a job's log folder, or with an option."""
    done = subprocess.run([sys.executable, script_of(paper), argument], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr
