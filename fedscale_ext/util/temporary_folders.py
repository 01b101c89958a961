"""Folders that are built aside and then renamed into place."""

import contextlib
import glob
import os
import shutil
import tempfile
import time
from pathlib import Path

_ABANDONED_S = 24 * 3600.0


def new_folder(parent: Path, prefix: str) -> Path:
    """Make a new folder in ``parent`` with the permissions of ``mkdir`` (``mkdtemp`` hides it from others)."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)
    return folder


def clear_abandoned(parent: Path, prefix: str) -> None:
    """Remove folders of :func:`new_folder` that nobody has changed for a day: what made them was ended."""
    for old in parent.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(old, ignore_errors=True)
