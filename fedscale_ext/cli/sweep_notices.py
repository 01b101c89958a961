"""What the jobs of a sweep have noticed, at its end: each sentence once, with the jobs that said it."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

_NAMED = 4  # jobs that a line names at most
_SHOWN = 20  # sentences; each job's summary has all of its own


def print_notices(err: Console, notices: Mapping[str, Sequence[str]]) -> None:
    """Print the notices of a sweep's jobs, given by the job's name, for whoever watches the sweep."""
    by_sentence: dict[str, list[str]] = {}
    for job, sentences in notices.items():
        for sentence in dict.fromkeys(sentences):
            by_sentence.setdefault(sentence, []).append(job)
    for sentence, jobs in list(by_sentence.items())[:_SHOWN]:
        line = f"[yellow]note:[/] {escape(sentence)} ({escape(_names(jobs, len(notices)))})"
        err.print(line, highlight=False, soft_wrap=True)
    if (more := len(by_sentence) - _SHOWN) > 0:
        err.print(f"[yellow]note:[/] {more} more notices stand in the jobs' summaries", highlight=False, soft_wrap=True)


def _names(jobs: Sequence[str], all_jobs: int) -> str:
    if len(jobs) == all_jobs > 1:
        return f"all {all_jobs} jobs"
    more = len(jobs) - _NAMED
    return ", ".join(jobs[:_NAMED]) + (f" and {more} more" if more > 0 else "")
