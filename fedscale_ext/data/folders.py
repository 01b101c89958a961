"""Folders that are built aside and then renamed into place."""

import os
import tempfile
from pathlib import Path


def new_folder(parent: Path, prefix: str) -> Path:
    """Make a new folder in ``parent`` with the permissions of ``mkdir`` (``mkdtemp`` hides it from others)."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)
    return folder
