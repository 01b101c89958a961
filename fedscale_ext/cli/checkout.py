"""The benchmark's harness and recorded rows, which are in the repository and not in an installed package."""

import importlib
import sys
from pathlib import Path
from typing import Any

import fedscale_ext
from fedscale_ext.core.errors import UserError

_ROOT = Path(fedscale_ext.__file__).resolve().parents[1]


def in_checkout() -> bool:
    """Return whether this package is that of a clone, which has the benchmark."""
    return (_ROOT / "evals" / "benchmark").is_dir()


def harness(module: str) -> Any:
    """Import a module of ``evals/benchmark``.

    Raises:
        UserError: This package is not that of a clone.

    """
    if not in_checkout():
        raise UserError(
            f"the benchmark's tasks and rows are in the repository, and {_ROOT} is none: clone it, "
            "install it with `pip install -e .`, and give the command again"
        )
    if str(_ROOT) not in sys.path:
        sys.path.insert(0, str(_ROOT))
    return importlib.import_module(f"evals.benchmark.{module}")
