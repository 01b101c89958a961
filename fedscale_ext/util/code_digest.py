"""A digest of the code that a job runs, so that a resumed job can tell whether it is still the same."""

import inspect
from pathlib import Path

import numpy as np
import torch

from fedscale_ext.util.digests import digest, package_files


def code_digest(method: type) -> str:
    """sha256 over torch's and NumPy's versions, this package's sources and the files of ``method`` and its bases."""
    files = package_files()
    for base in method.__mro__:
        if base.__module__.partition(".")[0] not in ("builtins", "fedscale", "fedscale_ext"):
            source = inspect.getsourcefile(base)
            if source is not None:
                files[f"{base.__module__}.{base.__qualname__}"] = Path(source)
    return digest(f"torch {torch.__version__}, numpy {np.__version__}", files)
