"""Which commit of this package runs, for whoever wants to repeat a result."""

import subprocess

from fedscale_ext.util.package import PACKAGE

ABSENT, CHANGED = "absent", "+changes"


def commit() -> str:
    """Return the checkout's commit id, followed by ``+changes`` where its files differ from it.

    ``absent`` stands for a package that was not installed from a checkout, or a machine without git.
    """
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:  # a checkout around it may be of something else
        return ABSENT
    head, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no", ".")
    if head is None or changes is None:
        return ABSENT
    return head + (CHANGED if changes else "")


def _git(*words: str) -> str | None:
    """What git says in the package's folder, None where it refuses or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(PACKAGE), *words], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
