"""A digest of the code that a job runs: whether a resumed job still has it, and whether all its processes do."""

import inspect
from functools import cache
from pathlib import Path

import numpy as np
import torch

from fedscale_ext.util.digests import digest, package_files


def code_digest(method: type) -> str:
    """sha256 over torch's and NumPy's versions, this package's sources and the files of ``method`` and its bases.

    A process reads them once, at its begin: what is edited later is not what it runs.
    """
    known = ("builtins", "fedscale", "fedscale_ext")
    return _digest(tuple(base for base in method.__mro__ if base.__module__.partition(".")[0] not in known))


@cache
def _digest(others: tuple[type, ...]) -> str:
    """The digest with the files of classes of other packages."""
    files = package_files()
    for base in others:
        source = inspect.getsourcefile(base)
        if source is not None:
            files[f"{base.__module__}.{base.__qualname__}"] = Path(source)
    return digest(f"torch {torch.__version__}, numpy {np.__version__}", files)
