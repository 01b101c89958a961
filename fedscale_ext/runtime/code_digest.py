"""A digest of the code that a job runs, so that a resumed job can tell whether it is still the same."""

import hashlib
import inspect
from pathlib import Path

import numpy as np
import torch

import fedscale_ext

_PACKAGE = Path(fedscale_ext.__file__).resolve().parent


def code_digest(method: type) -> str:
    """sha256 over torch's and NumPy's versions, this package's sources and the files of ``method`` and its bases."""
    files = {str(path.relative_to(_PACKAGE)): path for path in _PACKAGE.rglob("*.py")}
    for base in method.__mro__:
        if base.__module__.partition(".")[0] not in ("builtins", "fedscale", "fedscale_ext"):
            own = inspect.getsourcefile(base)
            if own is not None:
                files[f"{base.__module__}.{base.__qualname__}"] = Path(own)
    sha = hashlib.sha256(f"torch {torch.__version__}, numpy {np.__version__}\n".encode())
    for name in sorted(files):
        content = files[name].read_bytes()
        sha.update(f"{name} {len(content)}\n".encode())
        sha.update(content)
    return sha.hexdigest()
