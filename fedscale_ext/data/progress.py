"""Progress of something long: downloading, decoding or writing samples."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (samples or bytes done, those in all); the latter is 0 while unknown."""


def report_progress(progress: Progress | None, done: int, total: int) -> None:
    """Report progress every 256 samples and at the end (``total`` 0: not known)."""
    if progress is not None and (done % 256 == 0 or done == total):
        progress(done, total)
