"""A digest of this package's files, by which machines and runs tell whether they run the same code."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fedscale_ext.util.package import PACKAGE


def package_files() -> dict[str, Path]:
    """Sources of fedscale_ext, by their names within it."""
    return {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}


def digest(head: str, files: Mapping[str, Path]) -> str:
    """sha256 over a line of text and the names and contents of files."""
    sha = hashlib.sha256(f"{head}\n".encode())
    for name in sorted(files):
        content = files[name].read_bytes()
        sha.update(f"{name} {len(content)}\n".encode())
        sha.update(content)
    return sha.hexdigest()
