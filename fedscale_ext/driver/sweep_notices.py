"""Notices of a sweep's jobs, before its first one and at its end: each sentence once, with the jobs that gave it."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from fedscale_ext.report.notices import grouped

_SHOWN = 20  # sentences; each job's summary has all of its own


def print_notices(err: Console, notices: Mapping[str, Sequence[str]]) -> None:
    """Print the notices of a sweep's jobs, given by the job's name, for whoever watches the sweep."""
    sentences = grouped(notices)
    for sentence, jobs in sentences[:_SHOWN]:
        err.print(f"[yellow]note:[/] {escape(sentence)} ({escape(jobs)})", highlight=False, soft_wrap=True)
    if (more := len(sentences) - _SHOWN) > 0:
        err.print(f"[yellow]note:[/] {more} more notices stand in the jobs' summaries", highlight=False, soft_wrap=True)
