"""A disk that takes no more ends a job with one sentence; its last checkpoint is whole, for files are renamed."""

import errno
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from fedscale_ext.core.errors import UserError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
Run = TypeVar("Run", bound=Callable[..., Any])


def explained(run: Run) -> Run:
    """A job's ``run`` that raises UserError where a file cannot grow for want of space or quota."""

    @functools.wraps(run)
    def explain(job: Any) -> Any:
        try:
            return run(job)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise UserError(
                f"the disk takes no more: {error.filename or job.log_dir} cannot be written ({error.strerror}); "
                "make room and continue the job with --resume"
            ) from None

    return explain  # type: ignore[return-value]
