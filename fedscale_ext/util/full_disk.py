"""A disk that takes no more ends a job with one sentence; its last checkpoint is whole, for files are renamed."""

import errno
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from fedscale_ext.core.errors import UserError

AT_START = "make room, or set log_path to a folder on another disk"  # what to do before a job has begun
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
Run = TypeVar("Run", bound=Callable[..., Any])


def is_full(error: OSError) -> bool:
    """Tell whether a file cannot grow for want of space or quota."""
    return error.errno in _FULL


def sentence(error: OSError, path: str | os.PathLike[str], advice: str) -> str:
    """Say what cannot be written, the error's file or else ``path``, and what to do."""
    return f"the disk takes no more: {error.filename or path} cannot be written ({error.strerror}); {advice}"


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let an OSError name the file that is written: a write that fails does not say of which file."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def refused(path: str | os.PathLike[str], advice: str) -> Iterator[None]:
    """Raise UserError where a file cannot grow; ``path`` stands for one that the error does not name."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise UserError(sentence(error, path, advice)) from None


def explained(run: Run) -> Run:
    """A job's ``run`` that raises UserError where a file cannot grow for want of space or quota."""

    @functools.wraps(run)
    def explain(job: Any) -> Any:
        with refused(job.log_dir, "make room and continue the job with --resume"):
            return run(job)

    return explain  # type: ignore[return-value]
